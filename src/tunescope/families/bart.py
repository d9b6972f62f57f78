"""BART."""

from tunescope.families import Attention, Family, Stack


def _attention(path: str) -> Attention:
    return Attention(module=path, q=f"{path}.q_proj", k=f"{path}.k_proj", v=f"{path}.v_proj", o=f"{path}.out_proj")


def _stack(name: str, cross: Attention | None) -> Stack:
    return Stack(
        layers=f"{name}.layers",
        attention=_attention("self_attn"),
        cross=cross,
        ffn_in=("fc1",),
        ffn_out=("fc2",),
        norms={"self": "self_attn_layer_norm", "ffn": "final_layer_norm"}
        | ({"cross": "encoder_attn_layer_norm"} if cross else {}),
        norm_behind=True,
    )


FAMILY = Family(
    kind="encoder-decoder",
    stacks={"encoder": _stack("encoder", None), "decoder": _stack("decoder", _attention("encoder_attn"))},
)
