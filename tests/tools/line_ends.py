"""Ways with white space: in GPT-2's two line ends that end a text are one token, and two where a word follows."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
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


def llama() -> Any:
    """Llama 2's way: a space in front of every text, so that a line that begins one is not read as any other line."""
    letters = [chr(sign) for sign in range(33, 127)]
    made = Tokenizer(
        models.BPE({name: index for index, name in enumerate(("<unk>", "<s>", "</s>", "\n", *letters, "▁"))}, [])
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )
