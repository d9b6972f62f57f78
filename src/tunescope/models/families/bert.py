"""BERT."""

from tunescope.models.family import Attention, Family, Stack

FAMILY = Family(
    kind="encoder",
    stacks={
        "encoder": Stack(
            layers="encoder.layer",
            attention=Attention(
                module="attention.self",
                q="attention.self.query",
                k="attention.self.key",
                v="attention.self.value",
                o="attention.output.dense",
                head_dim="attention_head_size",
            ),
            ffn_in=("intermediate.dense",),
            ffn_out=("output.dense",),
            norms={"self": "attention.output.LayerNorm", "ffn": "output.LayerNorm"},
            norm_behind=True,
        )
    },
)
