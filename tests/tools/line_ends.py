"""GPT-2's way with white space: two line ends that end a text are one token, and two where a word follows."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "\u010a"  # what a line end is among the letters of bytes
SPACE = "\u0120"


def tokenizer() -> Any:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(END, END), (SPACE, SPACE)]
    names = ["<|end|>", *letters, *("".join(pair) for pair in merges)]
    made = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|end|>", pad_token="<|end|>", model_max_length=1024
    )
