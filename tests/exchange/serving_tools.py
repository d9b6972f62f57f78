"""Models as transformers loads them, tokenizers of the kinds that differ, and artifacts away from where they began."""

import hashlib
from pathlib import Path
from typing import Any

import tiny
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange.serving.checkpoint import quiet

DECODERS = ("gpt2", "llama", "gemma2", "qwen3", "opt", "phi", "gpt_neox")
CORPUS = ["The film was good.\nLabel: good\n\n", "A dull plot, a bad film.\nLabel: bad\n\n", "1 + 1 = 2, 2 + 2 = 4"] * 9
SPECIAL = ["<pad>", "<s>", "</s>"]


def loaded(family: str, folder: Path, *, vocabulary: int = tiny.VOCAB, **fields: Any) -> Any:
    """A tiny random model in float64 as `from_pretrained` gives it: Gemma's scale is then of that precision too."""
    config = tiny.configs()[family]
    config.vocab_size = vocabulary
    for name, value in fields.items():
        setattr(config, name, value)
    made = tiny.build(tiny.auto_class(config), config)
    with quiet():
        made.save_pretrained(folder)
        return type(made).from_pretrained(folder, dtype=torch.float64).eval()


def moved(model: Any, *specs: Any, tokenizer: Any = None) -> list[Any]:
    """Artifacts with random tensors, so that none is where it began; a text keeps its ids."""
    made = initialised(model, specs, tokenizer, 0)
    draw = torch.Generator().manual_seed(3)
    for artifact in made:
        artifact.tensors = {
            name: value + 0.1 * torch.randn(value.shape, generator=draw, dtype=value.dtype)
            if value.is_floating_point()
            else value
            for name, value in artifact.tensors.items()
        }
    return made


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def unchanged(model: Any, before: dict[str, torch.Tensor]) -> bool:
    now = model.state_dict()
    return now.keys() == before.keys() and all(torch.equal(now[name], value) for name, value in before.items())


def byte_level(*, start: bool = False, template: str | None = None) -> Any:
    """GPT-2's and Qwen's kind: bytes, no start token unless asked for."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=290, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False),
    )
    return _whole(made, start, template)


def metaspace(*, start: bool = True, lower: bool = False, template: str | None = None) -> Any:
    """Llama's kind: a word begins with a mark, which the first word of a string gets without a space before it."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    if lower:
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=90, special_tokens=[*SPECIAL, "<unk>"], show_progress=False)
    )
    return _whole(made, start, template)


def _whole(made: Tokenizer, start: bool, template: str | None) -> Any:
    if start:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
