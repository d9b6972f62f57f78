"""GPT-2: q, k and v are blocks of one Conv1D, whose weight is stored transposed."""

from tunescope.models.family import Attention, Family, Slice, Stack

FAMILY = Family(
    kind="decoder",
    stacks={
        "decoder": Stack(
            layers="h",
            attention=Attention(
                module="attn",
                q=Slice("attn.c_attn", 0, 3),
                k=Slice("attn.c_attn", 1, 3),
                v=Slice("attn.c_attn", 2, 3),
                o="attn.c_proj",
            ),
            ffn_in=("mlp.c_fc",),
            ffn_out=("mlp.c_proj",),
            norms={"self": "ln_1", "ffn": "ln_2"},
        )
    },
)
