"""T5, with a plain (v1.0) or a gated (v1.1, Flan) feed-forward."""

from tunescope.families import Attention, Family, Stack


def _attention(path: str) -> Attention:
    return Attention(
        module=path, q=f"{path}.q", k=f"{path}.k", v=f"{path}.v", o=f"{path}.o", head_dim="key_value_proj_dim"
    )


def _stack(name: str, ffn: str, cross: Attention | None) -> Stack:
    return Stack(
        layers=f"{name}.block",
        attention=_attention("layer.0.SelfAttention"),
        cross=cross,
        ffn_in=(f"{ffn}.wi", f"{ffn}.wi_1"),
        ffn_gate=(f"{ffn}.wi_0",),
        ffn_out=(f"{ffn}.wo",),
        norms={"self": "layer.0.layer_norm", "ffn": f"{ffn.rpartition('.')[0]}.layer_norm"}
        | ({"cross": "layer.1.layer_norm"} if cross else {}),
    )


FAMILY = Family(
    kind="encoder-decoder",
    stacks={
        "encoder": _stack("encoder", "layer.1.DenseReluDense", None),
        "decoder": _stack("decoder", "layer.2.DenseReluDense", _attention("layer.1.EncDecAttention")),
    },
)
