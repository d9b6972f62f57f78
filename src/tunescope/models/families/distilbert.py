"""DistilBERT."""

from tunescope.models.family import Attention, Family, Stack

FAMILY = Family(
    kind="encoder",
    stacks={
        "encoder": Stack(
            layers="transformer.layer",
            attention=Attention(
                module="attention",
                q="attention.q_lin",
                k="attention.k_lin",
                v="attention.v_lin",
                o="attention.out_lin",
                head_dim="attention_head_size",
            ),
            ffn_in=("ffn.lin1",),
            ffn_out=("ffn.lin2",),
            norms={"self": "sa_layer_norm", "ffn": "output_layer_norm"},
            norm_behind=True,
        )
    },
)
