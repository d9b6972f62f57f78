"""CodeGen: `_attn`, as in GPT-J."""

from functools import partial

from tunescope.attachment.attention.own import OwnAttention
from tunescope.attachment.own_attention import _scores

OWN = OwnAttention(partial(_scores.stand_ins, name="CodeGenAttention"))
