"""Phi: rotary on part of each head; attention and feed-forward stand side by side in a layer."""

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
                o="self_attn.dense",
            ),
            ffn_in=("mlp.fc1",),
            ffn_out=("mlp.fc2",),
        )
    },
)
