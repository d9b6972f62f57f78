"""`tunescope probe`: a model, a saved artifact and some texts in; a finding, with its page, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.artifact_folder import load
from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.made_for import check_base
from tunescope.attachment.manifest import read_manifest
from tunescope.data.read import read
from tunescope.data.row import value
from tunescope.errors import UserError
from tunescope.methods.contexts.anchors import Anchors
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.models.load import load_model
from tunescope.probes.names import LOOKS, known_probe
from tunescope.probes.see import see
from tunescope.report import findings_page
from tunescope.report.finding import Finding
from tunescope.system import files, machine, plugins
from tunescope.tasks.answers.batches import decoder_keywords, pad_id, padded
from tunescope.tasks.answers.likelihood import decoder_start
from tunescope.tasks.facts import positions
from tunescope.tasks.prompts import history, templates
from tunescope.tasks.prompts.mask import place
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROWS = 8
ANSWER = 12  # tokens that an encoder-decoder's decoder is read on


@dataclass(frozen=True)
class ProbeRequest:
    """What was typed: a probe, a model's and an artifact's place, and texts or a file of rows."""

    probe: str
    model: str
    artifact: str
    texts: tuple[str, ...] = ()
    data: str | None = None
    rows: int | None = None
    text_field: str = ""
    out: str | None = None
    command: str = ""


def run(request: ProbeRequest) -> tuple[Finding, Path]:
    """The finding, and the page that was written.

    Raises:
        UserError: there is no such probe; the model, artifact, file or a text cannot be used; the artifact has
            nothing of the kind that the probe looks at; the family's attention is not reached.
    """
    folder = Path(request.out) if request.out else Path("runs") / f"probe-{request.probe}"
    with files.disk_errors_named(folder, files.SAME_COMMAND):
        findings_page.check_folder(folder, "probe")
    module = plugins.load(LOOKS, known_probe(request.probe))
    if not callable(getattr(module, "look", None)):
        raise UserError(f"probes/looks/{request.probe}.py has no function look(seen) -> Finding.")
    artifacts = load(request.artifact)
    needs_text = getattr(module, "NEEDS_TEXT", True)
    _check_asked(request, needs_text)
    model, tokenizer = load_model(request.model)
    for artifact in artifacts:
        check_base(model, artifact, tokenizer)
    task = _task(request)
    turns = Turns(**task["chat"]) if task.get("chat") and request.data is not None else None
    is_begun = any(isinstance(artifact.spec, Text | Anchors) for artifact in artifacts)
    texts = _texts(request, tokenizer, anatomy(model).kind, turns, is_begun=is_begun) if needs_text else []
    model = model.to(machine.default_device()).eval()
    with attach(model, *artifacts, tokenizer=tokenizer) as tuned:
        has_start = not is_begun and turns is None  # else the words in front have it, where there is one
        batch = _batch(model, tuned, tokenizer, texts, has_start=has_start) if texts else None
        seen = see(model, tuned, batch, tokenizer)
    finding: Finding = module.look(seen)
    facts = {
        "probe": request.probe,
        "model": Path(request.model).name,
        "attached": seen.attached,
        "rows": len(texts),
        **machine.versions(),
    }
    with files.disk_errors_named(folder, files.SAME_COMMAND):
        return finding, findings_page.write(finding, folder, facts, texts, request.command)


def _check_asked(request: ProbeRequest, needs_text: bool) -> None:
    """UserError for texts or rows that cannot be read, or that nothing would read."""
    given = {"--text": bool(request.texts), "--data": request.data is not None, "--rows": request.rows is not None}
    given["--text-field"] = bool(request.text_field)
    if not needs_text and any(given.values()):
        raise UserError(
            f"Probe {request.probe} reads no text: leave {' and '.join(name for name, it in given.items() if it)} out."
        )
    if not needs_text:
        return
    if bool(request.texts) == (request.data is not None):
        given_both = ", and not both" if request.texts else ""
        raise UserError(
            f"Probe {request.probe} looks at texts: give --text TEXT (as often as you like) or --data FILE{given_both}."
        )
    if request.texts and request.rows is not None:
        raise UserError("--rows is of the rows of --data, and --text was given: leave it out.")
    if request.texts and request.text_field:
        raise UserError("--text-field is of the rows of --data, and --text was given: leave it out.")
    if request.rows is not None and request.rows < 1:
        raise UserError(f"--rows is {request.rows}; give at least 1.")
    if any(not text.strip() for text in request.texts):
        raise UserError("--text is empty; give words for the model to read.")


def _task(request: ProbeRequest) -> dict[str, Any]:
    """What the artifact says of the task it was tuned on."""
    return (read_manifest(Path(request.artifact)).get("about") or {}).get("task") or {}


def _texts(
    request: ProbeRequest, tokenizer: PreTrainedTokenizerBase, model_kind: str, turns: Turns | None, *, is_begun: bool
) -> list[str]:
    """The texts given, or the first rows of the file in the template that the artifact was trained with."""
    if request.data is None:
        return list(request.texts)
    rows, task = read(request.data)[: request.rows or ROWS], _task(request)
    template = (None if turns else task.get("asked")) or task.get("template")  # with the words that ask for an answer
    fronts = [""] * len(rows)
    if template is not None and turns is not None:
        head = "" if is_begun else turns.head
        fronts = [head + "".join(history.before(turns, template, row)) for row in rows]
        template = turns.asked(template)
    elif template is not None and task.get("by") == "words":
        template = place(template, tokenizer, model_kind).template
    given, own = request.text_field, str(task.get("text") or task.get("input") or "text")
    if template is None:
        own = next((name for name in (given, "text", "input") if name in rows[0]), given or own)
        template = f"{{{own}}}"
    fields = templates.fields(template)
    if given and own not in fields:
        raise UserError(f"--text-field {given} has no use: the artifact's template, {template!r}, has no {{{own}}}.")
    if fields == (own,) and (given or own) not in rows[0]:
        raise UserError(
            f"{request.data} has the fields {', '.join(rows[0])}: name the one with the text by --text-field, or give "
            "--text."
        )
    source = {own: given or own}
    filled = ({name: value(row, source.get(name, name), i) for name in fields} for i, row in enumerate(rows))
    put = [turns.values(task["template"], one) if turns else one for one in filled]
    return [front + templates.fill(template, one) for front, one in zip(fronts, put, strict=True)]


def _batch(
    model: PreTrainedModel,
    tuned: Attached,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    has_start: bool,
) -> dict[str, Tensor]:
    """The texts as the model's inputs, padded on the right, with the special tokens that training puts around them."""
    start, end = templates.edges(tokenizer)
    start = start if has_start else ()
    if anatomy(model).kind == "decoder":
        end = ()
    rows = [(*start, *ids, *end) for ids in templates.ids(tokenizer, texts)]
    _check_room(model, tuned, tokenizer, rows)
    ids, mask = padded(rows, pad_id(tokenizer), model.device, left=False)
    batch = {"input_ids": ids, "attention_mask": mask}
    if anatomy(model).kind == "decoder":
        return batch | decoder_keywords(model, mask, mask.sum(-1) - 1)
    return batch if anatomy(model).kind == "encoder" else batch | _answers(model, batch)


def _check_room(
    model: PreTrainedModel, tuned: Attached, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]]
) -> None:
    limit = positions(model.config, tokenizer)
    for index, row in enumerate(rows, 1):
        if not row:
            raise UserError(f"Text {index} comes to no token at all; give words that the tokenizer knows.")
        if limit is not None and len(row) + tuned.positions > limit:
            raise UserError(
                f"Text {index} has {len(row)} tokens, and beside a context of {tuned.positions} the model takes "
                f"{limit - tuned.positions}: shorten it."
            )


def _answers(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the decoder is read on: the model's own greedy answers, as far as ANSWER tokens."""
    ids = torch.full((len(batch["input_ids"]), 1), decoder_start(model), device=model.device)
    ends = torch.tensor(_ends(model), device=model.device, dtype=ids.dtype)
    over = torch.zeros_like(ids, dtype=torch.bool)
    for _ in range(ANSWER - 1):
        with torch.no_grad():
            step = model(**batch, decoder_input_ids=ids).logits[:, -1:].argmax(-1)
        ended = torch.isin(ids[:, -1:], ends) & (ids.shape[1] > 1)  # the decoder's first token ends nothing
        over = torch.cat([over, over[:, -1:] | ended], 1)
        ids = torch.cat([ids, step], 1)
    return {"decoder_input_ids": ids, "decoder_attention_mask": (~over).long()}


def _ends(model: PreTrainedModel) -> list[int]:
    """The tokens that end a text."""
    found = model.config.eos_token_id
    return [] if found is None else list(found) if isinstance(found, list | tuple) else [found]
