"""GPT-NeoX and Pythia: q, k and v are interleaved head by head in one linear map."""

from tunescope.models.family import Attention, Family, Slice, Stack

FAMILY = Family(
    kind="decoder",
    stacks={
        "decoder": Stack(
            layers="layers",
            attention=Attention(
                module="attention",
                q=Slice("attention.query_key_value", 0, 3, per_head=True),
                k=Slice("attention.query_key_value", 1, 3, per_head=True),
                v=Slice("attention.query_key_value", 2, 3, per_head=True),
                o="attention.dense",
                head_dim="head_size",
            ),
            ffn_in=("mlp.dense_h_to_4h",),
            ffn_out=("mlp.dense_4h_to_h",),
        )
    },
)
