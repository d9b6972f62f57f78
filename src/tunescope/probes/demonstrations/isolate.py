"""Whether label words need what stands before them: they are cut off from it, in shallow or in deep layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.record import record
from tunescope.methods.artifact import Artifact
from tunescope.probes.anchors.isolation import Words, control, isolated
from tunescope.probes.anchors.loyalty import label_loyalty, word_loyalty
from tunescope.probes.anchors.prompts import Batch
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.saliency import answers
from tunescope.probes.anchors.summary import shown
from tunescope.report.finding import Finding
from tunescope.tasks.prompts.spans import Spans

ORDER = 2
TOP = 5
WHERE = ("first", "last")


def counts(layers: int) -> list[int]:
    """How many layers are cut: 1, 3, 5 and 7 as published, as far as there are as many."""
    return [n for n in (1, 3, 5, 7) if n <= layers]


def measure(round: Round) -> dict[str, Any]:
    """Label and word loyalty for label words and for random others, cut in the first and in the last layers."""
    found, depth = [], len(round.reading)
    begun_at = sorted({1, *(depth - n + 1 for n in counts(depth))} & set(range(1, depth)))
    round = replace(round, begun_at=tuple(begun_at))
    for n in counts(depth):
        for where in WHERE:
            names = round.reading[:n] if where == "first" else round.reading[-n:]
            for what in ("label words", "random words"):
                logits = _cut(round, what, names)
                words = [_words(prompt.spans, what, round.seed) for prompt in round.prompts]
                found.append(
                    {
                        "layers": n,
                        "where": where,
                        "words": what,
                        "tokens": sum(len(word) for own in words for word in own) / len(words),
                        "label_loyalty": label_loyalty(round.by_class(round.logits), round.by_class(logits)),
                        "word_loyalty": word_loyalty(round.logits, logits, TOP),
                        "accuracy": float((round.chosen(logits) == round.gold).double().mean()),
                    }
                )
    return {
        "seed": round.seed,
        "rows": len(round.prompts),
        "accuracy": float((round.predicted == round.gold).double().mean()),
        "cuts": found,
    }


def _cut(round: Round, what: str, names: Sequence[str]) -> Tensor:
    """(prompts, vocabulary), with these words cut off in these attention modules."""
    if round.read is not None:
        # what a layer reads of the demonstrations is changed by a cut below it
        begun_at = round.reading.index(names[0]) + 1
        if begun_at == len(round.reading) and round.can_begin:
            return round.logits
        return round.behind(
            lambda whole, spans: _read_cut(round, whole, spans, _words(spans, what, round.seed), names),
            begun_at if begun_at in round.begun_at and round.can_begin else None,
        )
    logits = []
    for batch in round.batches():
        words = [_words(prompt.spans, what, round.seed) for prompt in batch.prompts]
        cut = isolated(round.model, batch, words, names)
        with resting(round.model), torch.no_grad(), cut:
            logits.append(answers(round.model, batch).cpu())
    return round.in_order(logits)


def _read_cut(round: Round, whole: Artifact, spans: Spans, words: Words, names: Sequence[str]) -> Artifact:
    """The demonstrations' keys and values as the model reads them with the words cut off.

    The cut is in the demonstrations alone, and in a decoder they do not look at the query: so one pass serves all.
    """
    ids = torch.tensor([spans.ids], device=round.model.device)
    alone = Batch(
        (), {}, torch.zeros(1, dtype=torch.long, device=ids.device), torch.ones_like(ids, dtype=torch.bool), 0
    )
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    with resting(round.model), isolated(round.model, alone, [words], names):
        tensors = record(round.model, given, "key", "value")  # a cache holds neither where layers share or make them
    return replace(whole, tensors={name: tensors[name][0] for name in whole.tensors})


def _words(spans: Spans, what: str, seed: int) -> Words:
    return spans.labels if what == "label words" else control(spans, seed)


def finding(found: Sequence[dict[str, Any]]) -> Finding:
    """A row for every cut."""
    rows = []
    tokens = {
        cut["words"]: [one["tokens"] for draw in found for one in draw["cuts"] if one["words"] == cut["words"]]
        for cut in found[0]["cuts"]
    }
    labels, others = (sum(tokens[what]) / len(tokens[what]) for what in ("label words", "random words"))
    for index, cut in enumerate(found[0]["cuts"]):
        each = [one["cuts"][index] for one in found]
        rows.append(
            (
                f"{cut['where']} {cut['layers']}",
                cut["words"],
                *(shown([one[key] for one in each], 0, 1) for key in ("label_loyalty", "word_loyalty", "accuracy")),
            )
        )
    return Finding(
        heading="Label words cut off from their demonstrations",
        says="In the first or the last layers each label word attends to itself alone; the control does the same to as "
        "many random other words, the same ones in all layers, as far as the demonstrations have so many: of a prompt "
        f"{labels:.1f} tokens of label words and {others:.1f} of others were cut. Label loyalty: the share of rows "
        "whose answer stays. "
        f"Word loyalty: the mean overlap (Jaccard) of the {TOP} likeliest next tokens (Wang et al. 2023, section "
        "2.2). Uncut accuracy: " + shown([one["accuracy"] for one in found], 0, 1) + ".",
        not_said="Loyalty is to the model's own answers, right or wrong. A cut changes what later layers read too, so "
        "a low loyalty does not say which later step was hurt.",
        columns=("layers cut", "words cut", "label loyalty", "word loyalty", "accuracy"),
        rows=rows,
        numbers={"draws": list(found)},
    )
