"""One answer from several demonstration sets: the mean of the labels' scores (LM-BFF, arXiv:2012.15723, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.models.anatomy import anatomy
from tunescope.tasks.answers import choices
from tunescope.tasks.answers.calibration import share
from tunescope.tasks.prompts.templates import Ids
from tunescope.tasks.task import Encoded, Labelled, Prediction, with_front

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def predicted(
    task: Labelled,
    model: PreTrainedModel,
    sets: Sequence[Sequence[Encoded]],
    tokenizer: PreTrainedTokenizerBase,
    prior: Tensor | None = None,
) -> list[Prediction]:
    """For each row the label of the highest of its `averaged` scores, the first of equals."""
    return task.answered(sets[0], averaged(task, model, sets, tokenizer, prior))


def averaged(
    task: Labelled,
    model: PreTrainedModel,
    sets: Sequence[Sequence[Encoded]],
    tokenizer: PreTrainedTokenizerBase,
    prior: Tensor | None = None,
) -> Tensor:
    """(rows, labels): the mean over the sets of the labels' scores.

    The score of a label is `answering.scores`: a head's or a mask's logit, or the log-probability of the whole word.
    Gao et al. take the mean of the logits of one-token words. Log-probabilities, over the vocabulary or over the
    labels, give the same answers and the same shares: in each set they differ from the logits by what is the same for
    all labels. The label is thus that of the largest geometric mean of probabilities, not of the largest mean.

    Args:
        sets: set -> the same rows, each behind that set's demonstrations.
        prior: (sets, rows, labels), what the probability of each label is divided by before (`priors`).
    """
    words = list(task.word_ids(tokenizer, anatomy(model).kind).values())
    scores = torch.stack([choices.all_scores(model, rows, words, tokenizer) for rows in sets])
    return (scores if prior is None else scores - prior.to(scores).log()).mean(0)


def priors(
    task: Labelled,
    model: PreTrainedModel,
    fronts: Sequence[Sequence[Ids]],
    asked: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
) -> Tensor:
    """(sets, rows, labels): the labels' shares for inputs without content behind each set of each row: `calibration`.

    Args:
        fronts: set -> row -> the tokens of its demonstrations.
        asked: the rows without content (`calibration.contentless`).
    """
    words = list(task.word_ids(tokenizer, anatomy(model).kind).values())
    found = []
    for one in fronts:
        rows = [with_front(front, row) for front in one for row in asked]
        scores = choices.all_scores(model, rows, words, tokenizer)
        found.append(share(scores.view(len(one), len(asked), -1)))
    return torch.stack(found)
