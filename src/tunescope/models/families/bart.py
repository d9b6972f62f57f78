"""BART."""

from tunescope.models.family import Attention, Family, Stack


def _attention(path: str) -> Attention:
    return Attention(module=path, q=f"{path}.q_proj", k=f"{path}.k_proj", v=f"{path}.v_proj", o=f"{path}.out_proj")


def _stack(name: str, second: Attention | None, **norms: str) -> Stack:
    return Stack(
        layers=f"{name}.layers",
        attention=_attention("self_attn"),
        cross=second,
        ffn_in=("fc1",),
        ffn_out=("fc2",),
        norms={"self": "self_attn_layer_norm", "ffn": "final_layer_norm", **norms},
        norm_behind=True,
    )


ENCODER = _stack("encoder", None)
DECODER = _stack("decoder", _attention("encoder_attn"), cross="encoder_attn_layer_norm")
FAMILY = Family(kind="encoder-decoder", stacks={"encoder": ENCODER, "decoder": DECODER})
