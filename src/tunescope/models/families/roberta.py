"""RoBERTa: BERT's layout; positions start after the padding index."""

from tunescope.models.families.bert import FAMILY as FAMILY
