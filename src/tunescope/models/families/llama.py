"""Llama: grouped heads, gated feed-forward, rotary positions."""

from tunescope.models.family import Attention, Family, Stack

FAMILY = Family(
    kind="decoder",
    stacks={
        "decoder": Stack(
            layers="layers",
            attention=Attention(
                module="self_attn",
                q="self_attn.q_proj",
                k="self_attn.k_proj",
                v="self_attn.v_proj",
                o="self_attn.o_proj",
            ),
            ffn_in=("mlp.up_proj",),
            ffn_out=("mlp.down_proj",),
            ffn_gate=("mlp.gate_proj",),
            norms={"self": "input_layernorm", "ffn": "post_attention_layernorm"},
        )
    },
)
