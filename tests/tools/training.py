"""A Trainer with what these tests leave out of it switched off, and the loop by hand that it is held against."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers as tf
from torch import Tensor

STEPS, RATE, CLIP = 4, 0.02, 0.1


def arguments(folder: Path, kind: type = tf.TrainingArguments, **more: Any) -> Any:
    settings = {
        "per_device_train_batch_size": 3,
        "max_steps": STEPS,
        "learning_rate": RATE,
        "max_grad_norm": CLIP,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    return kind(str(folder), **(settings | more))


def recording(seen: list[dict[str, Any]], names: list[str | None] | None = None) -> Callable[[list[Any]], Any]:
    """A collator that keeps every batch it makes; names: for a bank, of which each row takes one in turn."""

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        if names is not None:
            batch["rows"] = [names[int(row["input_ids"][0]) % len(names)] for row in rows]
        seen.append(batch)
        return batch

    return collate


def by_hand(model: Any, parameters: list[Tensor], batches: list[dict[str, Any]]) -> None:
    """AdamW as in Loshchilov and Hutter (no decay), the norm clipped, the rate falling linearly; mean over labels.

    A tensor that a batch does not use rests, as torch has it: its moments and its count of steps too.
    """
    moments = [[torch.zeros_like(p), torch.zeros_like(p), 0] for p in parameters]
    for step, batch in enumerate(batches):
        grads = torch.autograd.grad(mean_loss(model, batch), parameters, allow_unused=True)
        norm = torch.stack([grad.norm() for grad in grads if grad is not None]).norm()
        factor, rate = min(1.0, CLIP / (float(norm) + 1e-6)), RATE * (1 - step / len(batches))
        for p, grad, own in zip(parameters, grads, moments, strict=True):
            if grad is not None:
                own[2] += 1
                own[0] = 0.9 * own[0] + 0.1 * factor * grad
                own[1] = 0.999 * own[1] + 0.001 * (factor * grad) ** 2
                mean, spread = own[0] / (1 - 0.9 ** own[2]), own[1] / (1 - 0.999 ** own[2])
                with torch.no_grad():
                    p -= rate * mean / (spread.sqrt() + 1e-8)


def mean_loss(model: Any, batch: dict[str, Any]) -> Tensor:
    labels, whole = batch["labels"], bool(model.config.is_encoder_decoder)
    logits = model(**{key: value for key, value in batch.items() if whole or key != "labels"}).logits
    if labels.dim() == 2 and not whole:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten())
