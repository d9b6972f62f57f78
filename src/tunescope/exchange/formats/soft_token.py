"""A soft prompt as tokens of its own: rows added to the vocabulary, so that any server takes it as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import added_rows, checkpoint, embeddings, soft_token_page
from tunescope.exchange.serving.prompt_tokenizer import Prompted, prompted, samples
from tunescope.exchange.serving.refusals import check_tokenizer, check_tokens
from tunescope.methods.artifact import TokenContext
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.models.silence import quiet
from tunescope.system import files
from tunescope.tasks.prompts import templates

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ABOUT = "a whole checkpoint with the soft prompt as added tokens, sent as text; changes of weights beside it are merged"
SERVES = (
    "what serves the base model with an output head of its own: transformers, vLLM, SGLang, llama.cpp as GGUF; for "
    "Gemma vLLM and SGLang take no such head"
)
PROMPT = "prompt.txt"


def write(given: Outgoing, folder: Path) -> list[str]:
    """The base's files with a row for each of the prompt's tokens, the tokenizer's, `prompt.txt` and a README.

    Raises:
        UserError: no decoder, no tokenizer, nothing soft to write, an artifact that is neither tokens nor a change of
            weights, or a tokenizer that no token can be added to.
    """
    check_tokens(given, "soft_token", changes=True)
    check_tokenizer(given, "soft_token")
    contexts = [one.spec for one in given.artifacts if isinstance(one.spec, TokenContext)]
    if all(isinstance(spec, Text) for spec in contexts):
        raise UserError("--to soft_token is for trained embeddings, and this context is words: use --to messages.")
    base = embeddings.merged(given)
    rows = embeddings.rows(given, base)
    made, unused = _prompted(given, len(rows))
    model = added_rows.with_rows(base, rows)
    already, first = model.generation_config.suppress_tokens or [], made.first
    model.generation_config.suppress_tokens = [*already, *range(first, first + len(rows))]
    checkpoint.write(model, made.tokenizer, folder)
    if made.text is not None:
        files.write(folder / PROMPT, made.text.encode())
    files.write(folder / "README.md", soft_token_page.page(made, bool(made.tokenizer.chat_template)).encode())
    checkpoint.describe(given, "soft_token", folder, prompt={"tokens": len(rows), "first_id": made.first})
    return _notes(given, made, unused, folder)


def check(given: Outgoing, folder: Path) -> float:
    """Logits over the old vocabulary at the positions of a text behind `prompt.txt`, against the attached model."""
    from transformers import AutoTokenizer

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    model = checkpoint.read(given.model, folder)
    made, _ = _prompted(given, len(embeddings.rows(given, given.model)))
    worst = 0.0
    for text in samples(given.tokenizer):
        ids = list(made.ids + templates.ids(given.tokenizer, [text])[0])
        if made.text is not None:
            read = tokenizer(made.text + text, add_special_tokens=False)["input_ids"]
            if read != ids:
                raise UserError(
                    f"transformers' AutoTokenizer reads the written tokenizer as {type(tokenizer).__name__}, with "
                    f"other ids than the {type(given.tokenizer).__name__} given: its model type has another."
                )
        worst = max(worst, _apart(given, model, ids, len(made.tokens)))
    return worst


def _apart(given: Outgoing, model: PreTrainedModel, ids: list[int], n_prompt: int) -> float:
    room = embeddings.room(given.model)
    whole = torch.tensor([ids[:room]], device=given.model.device)
    if whole.shape[1] <= n_prompt:
        raise UserError(f"A prompt of {n_prompt} tokens leaves no room for a text in this model of {room} positions.")
    with resting(given.model), torch.no_grad():
        got: Tensor = model(input_ids=whole).logits[:, n_prompt:, : len(anatomy(given.model).table.weight)]
        with attach(given.model, *given.artifacts):
            expected: Tensor = given.model(input_ids=whole[:, n_prompt:]).logits
    return difference(got, expected)


def _prompted(given: Outgoing, count: int) -> tuple[Prompted, int]:
    rows = len(anatomy(given.model).table.weight)
    return prompted(given.tokenizer, rows, count, embeddings.start(given))


def _notes(given: Outgoing, made: Prompted, unused: int, folder: Path) -> list[str]:
    count, first, size = len(made.tokens), made.first, checkpoint.size(folder)
    notes = [f"a full copy of the base, {size}; rows added: {count}, of which {made.tokens[0]} is id {first}"]
    if given.model.get_output_embeddings().weight is anatomy(given.model).table.weight:
        notes.append("the output head was tied to the embeddings, and is now a matrix of its own")
    if unused:
        notes.append(
            f"rows of the base for which the tokenizer has no token: {unused}. They are left as they are, and the "
            "tokenizer got as many unused tokens for them"
        )
    by = added_rows.scale(anatomy(given.model).table)
    if by != 1:
        notes.append(
            f"this family multiplies embeddings by {by:g}, so the rows are stored divided by it, to one rounding; "
            "vLLM's and SGLang's Gemma take no head apart from the embeddings: there use --to embeds"
        )
    if made.text is None:
        notes.append("no string gives the ids of the tuning with this tokenizer: send ids, as README.md says")
    if not made.tokenizer.chat_template:
        notes.append("the tokenizer has no chat template: put prompt.txt in front of every text, as README.md says")
    return notes
