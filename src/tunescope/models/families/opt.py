"""OPT: the feed-forward maps are children of the layer itself."""

from tunescope.models.family import Attention, Family, Stack

FAMILY = Family(
    kind="decoder",
    stacks={
        "decoder": Stack(
            layers="decoder.layers",
            attention=Attention(
                module="self_attn",
                q="self_attn.q_proj",
                k="self_attn.k_proj",
                v="self_attn.v_proj",
                o="self_attn.out_proj",
            ),
            ffn_in=("fc1",),
            ffn_out=("fc2",),
        )
    },
)
