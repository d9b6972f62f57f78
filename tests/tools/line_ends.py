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


def pegasus() -> Any:
    """A line end is read as a space, and a space stands in front of every text: as a sign's own, or by itself."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("▁Review:", -1.5), ("▁a", -3.0), ("▁b", -3.0)]
    made = Tokenizer(models.Unigram([*pieces, *((sign, -4.0) for sign in "Review:ab日本")], 0, False))
    made.normalizer = normalizers.Replace("\n", " ")
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", unk_token="<unk>", pad_token="</s>")


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
