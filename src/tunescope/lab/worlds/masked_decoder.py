"""A decoder of Llama's form made a masked model: its weights in EuroBERT's class, and taught to fill in words.

A small machine cannot pretrain a masked model that reads. What a pretrained decoder has read it keeps when it learns to
look both ways (BehnamGhader et al. 2024, arXiv:2404.05961): there by predicting a masked word at the place before it,
here at its own, as every masked model of transformers is asked. A share of 0.3 is masked (Wettig et al. 2023,
arXiv:2202.08005), and 0.15 of what is held out.

    python -m tunescope.lab.worlds.masked_decoder MODEL TEXTS --out DIR

The same command goes on with what was cut off, from its last minute; what differs in anything begins anew.
"""

from __future__ import annotations

import argparse
import glob
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils import logging

from tunescope.errors import UserError
from tunescope.lab.worlds import texts
from tunescope.lab.worlds.manifest import write_manifest
from tunescope.lab.worlds.text_files import digest, read
from tunescope.lab.worlds.text_models import held_out_loss
from tunescope.system import files, run_folder
from tunescope.system.lock import locked
from tunescope.system.package_version import package_version
from tunescope.system.say import say
from tunescope.trial.train.loop import Problem, Progress, Saving, train
from tunescope.trial.train.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SHAPE = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "hidden_act", "rms_norm_eps"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"),
    *("rope_parameters", "max_position_embeddings", "tie_word_embeddings"),
)  # fields that both configs have
SHARE = 0.3  # of the tokens, masked while it learns
TOGETHER = 16  # rows of one evaluation pass
HELD_OUT = 64  # rows at most
SAVE_EVERY = 60.0  # seconds


def both_ways(decoder: PreTrainedModel, words: PreTrainedTokenizerFast) -> PreTrainedModel:
    """The same weights in EuroBERT's class; the tokenizer has a mask token now, whose row, where it is a new one, is
    their mean, give or take a little.

    Raises:
        UserError: the decoder is no Llama.
    """
    from transformers import EuroBertConfig, EuroBertForMaskedLM

    config = decoder.config
    if config.model_type != "llama" or config.mlp_bias:
        raise UserError(
            f"{type(decoder).__name__} of {config.model_type} has no masked class of its form: give a Llama."
        )
    ends = {"pad_token_id": words.pad_token_id, "bos_token_id": None, "eos_token_id": words.eos_token_id}
    ends["mask_token_id"] = 0  # until the tokenizer has one
    made = EuroBertForMaskedLM(EuroBertConfig(**{name: getattr(config, name) for name in SHAPE}, **ends))
    made.load_state_dict(decoder.state_dict())
    texts.with_mask(words, config.max_position_embeddings)
    made.resize_token_embeddings(max(len(words), config.vocab_size))
    made.config.mask_token_id = words.mask_token_id
    return made


def loss(network: PreTrainedModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of the targets that are not -100; logits are made where these are alone."""
    asked = targets != -100
    states = network.base_model(input_ids=inputs).last_hidden_state
    return F.cross_entropy(network.lm_head(states[asked]).float(), targets[asked])


def _begun(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A decoder as a masked model, and its tokenizer. Raises UserError where there is none of that name."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    safe = {"trust_remote_code": False}
    try:
        decoder = AutoModelForCausalLM.from_pretrained(name, dtype="float32", use_safetensors=True, **safe)
        words = AutoTokenizer.from_pretrained(name, **safe)
    except (OSError, ValueError) as problem:
        raise UserError(
            f"{name} is no decoder that transformers reads: {str(problem).strip().splitlines()[0]}"
        ) from problem
    return both_ways(decoder, words), words


def learn(
    network: PreTrainedModel,
    corpus: texts.Corpus,
    words: PreTrainedTokenizerFast,
    settings: Settings,
    rate: float,
    saving: Saving,
) -> list[float]:
    """Train it; the nats a masked token held out, before and after."""
    rows = corpus.train
    watched = texts.masked(corpus.held_out[:HELD_OUT], words, 0)

    def now() -> float:
        return held_out_loss(network, *watched, of=loss, together=TOGETHER)

    before = now()
    parameters = dict(network.named_parameters())

    def drawn(chosen: list[int]) -> tuple[Tensor, Tensor]:
        return texts.masked(rows[chosen], words, int(torch.randint(2**62, ())), SHARE)

    problem = Problem(
        parameters=parameters,
        rates=dict.fromkeys(parameters, rate),
        loss=lambda chosen: loss(network, *drawn(chosen)),
        score=lambda: -now(),
        lengths=[rows.shape[1]] * len(rows),
        labelled=[rows.shape[1]] * len(rows),
    )
    network.train()
    train(problem, settings, 0, saving=saving, report=_say)
    network.eval()
    return [before, now()]


def make(given: argparse.Namespace) -> None:
    """The folder that was asked for: model, tokenizer and manifest.

    Raises:
        UserError: the folder is there; the model is no Llama; too little text.
    """
    if given.out.exists():
        raise UserError(f"--out {given.out} is there already: name a new folder")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)  # of the row that is drawn
    network, words = _begun(given.model)
    corpus = texts.corpus([text for one in given.texts for text in read(one)], words, given.length, 0)
    settings = Settings(
        steps=given.steps, batch_size=given.batch_size, schedule="cosine", precision="float32", patience=given.steps
    )
    facts: dict[str, Any] = {"model": given.model, "texts": [digest(one) for one in given.texts]}
    facts |= {"steps": given.steps, "batch_size": given.batch_size, "length": given.length, "rate": given.rate}
    begun = given.out.with_name(f".{given.out.name}.{_identity(facts, network)}.begun")
    torch.manual_seed(0)
    with locked(begun):
        before, after = learn(network, corpus, words, settings, given.rate, Saving(begun, SAVE_EVERY))
        with files.new_folder(given.out) as beside:
            network.save_pretrained(beside)
            words.save_pretrained(beside)
            facts |= {"parameters": network.num_parameters(), "losses": {"before": before, "masked words": after}}
            facts |= {"characters_a_token": corpus.characters_a_token, "tokens": corpus.train.numel()}
            write_manifest(beside, facts)
    for begun in given.out.parent.glob(f".{glob.escape(given.out.name)}.*.begun"):
        files.remove(begun)
    say(
        f"{given.out}: {network.num_parameters():,} parameters; nats a masked token held out: {before:.3f} as it "
        f"was, {after:.3f} now"
    )


def _identity(facts: dict[str, Any], network: PreTrainedModel) -> str:
    """16 hex digits over all that the training depends on."""
    weights = sha256()
    for name, tensor in network.state_dict().items():
        weights.update(name.encode() + tensor.numpy().tobytes())
    versions = {name: package_version(name) for name in ("torch", "transformers", "tokenizers", "tunescope")}
    return run_folder.identity(facts | {"weights": weights.hexdigest()} | versions)


def _say(now: Progress) -> None:
    if now.step % 20 == 0:
        left = f"{now.seconds_left / 60:.0f} minutes left"
        say(f"step {now.step:,} of {now.steps:,}: loss {now.loss:.3f}, {left}", sys.stderr)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tunescope.lab.worlds.masked_decoder", description=__doc__)
    parser.add_argument("model", help="a folder, or a name on the hub: a decoder of Llama's form")
    parser.add_argument(
        "texts", nargs="+", help="files or folders: .txt (one text a line), .jsonl, .csv or .tsv (field text)"
    )
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the model")
    parser.add_argument("--steps", type=int, default=600, help="updates")
    parser.add_argument("--batch-size", type=int, default=4, help="rows of one")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate, at its highest")
    given = parser.parse_args()
    logging.disable_progress_bar()
    told = logging.get_verbosity()
    logging.set_verbosity_error()  # of rows that are cut into pieces it would say that they are too long
    try:
        make(given)
    except UserError as problem:
        parser.error(str(problem))
    finally:
        logging.set_verbosity(told)


if __name__ == "__main__":
    main()
