"""T5, with a plain (v1.0) or a gated (v1.1, Flan) feed-forward."""

from tunescope.models.family import Attention, Family, Stack


def _attention(path: str) -> Attention:
    return Attention(
        module=path, q=f"{path}.q", k=f"{path}.k", v=f"{path}.v", o=f"{path}.o", head_dim="key_value_proj_dim"
    )


def _stack(name: str, last: str, second: Attention | None, **norms: str) -> Stack:
    return Stack(
        layers=f"{name}.block",
        attention=_attention("layer.0.SelfAttention"),
        cross=second,
        ffn_in=(f"{last}.DenseReluDense.wi", f"{last}.DenseReluDense.wi_1"),
        ffn_gate=(f"{last}.DenseReluDense.wi_0",),
        ffn_out=(f"{last}.DenseReluDense.wo",),
        norms={"self": "layer.0.layer_norm", "ffn": f"{last}.layer_norm", **norms},
    )


ENCODER = _stack("encoder", "layer.1", None)
DECODER = _stack("decoder", "layer.2", _attention("layer.1.EncDecAttention"), cross="layer.1.layer_norm")
FAMILY = Family(kind="encoder-decoder", stacks={"encoder": ENCODER, "decoder": DECODER})
