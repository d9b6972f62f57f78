"""The searches and their loss written out, a row and a token at a time, in plain transformers calls."""

from typing import Any

import torch
from torch import Tensor


def table(model: Any) -> Tensor:
    """Every token's embedding, as the first layer sees it."""
    with torch.no_grad():
        return model.get_input_embeddings()(torch.arange(model.config.vocab_size))


def loss(model: Any, prompt: Tensor, rows: list[Any], start: list[int]) -> Tensor:
    """The mean cross-entropy over all target tokens of [start | prompt | row]; prompt (length, width)."""
    whole, found = table(model), []
    for row in rows:
        front = torch.cat([whole[list(start)], prompt, whole[list(row.input_ids)]])
        if model.config.is_encoder_decoder:
            begun = [model.config.decoder_start_token_id, *row.lead]
            before = torch.tensor([[*begun, *row.target_ids[:-1]]])
            logits = model(inputs_embeds=front[None], decoder_input_ids=before).logits[0, len(begun) - 1 :]
        else:
            inputs = torch.cat([front, whole[list(row.target_ids[:-1])]])
            logits = model(inputs_embeds=inputs[None]).logits[0, len(front) - 1 :]
        found += [-logits[i].log_softmax(-1)[token] for i, token in enumerate(row.target_ids)]
    return torch.stack(found).mean()


def fluency(model: Any, prompt: Tensor, ids: list[int], start: list[int]) -> Tensor:
    """The mean cross-entropy of the prompt's tokens 2 to M, each given what stands before it."""
    found = []
    for place in range(1, len(ids)):
        before = torch.cat([table(model)[list(start)], prompt[:place]])
        found.append(-model(inputs_embeds=before[None]).logits[0, -1].log_softmax(-1)[ids[place]])
    return torch.stack(found).mean()


def gradient(model: Any, ids: list[int], rows: list[Any], start: list[int], share: float = 0.0) -> tuple[float, Tensor]:
    prompt = table(model)[ids].clone().requires_grad_()
    value = loss(model, prompt, rows, start)
    if share:
        value = (1 - share) * value + share * fluency(model, prompt, ids, start)
    (found,) = torch.autograd.grad(value, prompt)
    return float(value.detach()), found


def projected(model: Any, points: Tensor, allowed: list[int], by: str) -> list[int]:
    """The nearest allowed token of each point, the first of equals."""
    whole, found = table(model), []
    for point in points:
        best, best_score = -1, -float("inf")
        for token in allowed:
            other = whole[token]
            score = (
                float(point @ other / (point.norm() * other.norm()))
                if by == "cosine"
                else -float((point - other).norm())
            )
            if score > best_score:
                best, best_score = token, score
        found.append(best)
    return found


def adamw(point: Tensor, slope: Tensor, state: dict[str, Any], rate: float) -> Tensor:
    """Loshchilov and Hutter's step with torch's defaults and no decay."""
    state["t"] = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * slope
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * slope**2
    m, v = state["m"] / (1 - 0.9 ** state["t"]), state["v"] / (1 - 0.999 ** state["t"])
    return point - rate * m / (v.sqrt() + 1e-8)


def adafactor(point: Tensor, slope: Tensor, state: dict[str, Any], rate: float) -> Tensor:
    """Shazeer and Stern 2018, Algorithm 4, without momentum, at a fixed rate that no parameter's size scales."""
    state["t"] = state.get("t", 0) + 1
    kept, squares = 1 - state["t"] ** -0.8, slope**2 + 1e-30
    state["r"] = kept * state.get("r", 0) + (1 - kept) * squares.mean(1)
    state["c"] = kept * state.get("c", 0) + (1 - kept) * squares.mean(0)
    step = slope / (torch.outer(state["r"], state["c"]) / state["r"].mean()).sqrt()
    return point - rate * step / max(1.0, float((step**2).mean().sqrt()))


def pez(model: Any, first: list[int], rows: list[Any], allowed: list[int], settings: dict[str, Any]) -> list[list[int]]:
    """Wen et al. 2023, Algorithm 1: the prompts after each of `steps` steps."""
    point, state, found = table(model)[first].clone(), {}, []
    for _ in range(settings["steps"]):
        ids = projected(model, point, allowed, settings["by"])
        _, slope = gradient(model, ids, rows, settings["start"], settings["fluency"])
        if settings["optimizer"] == "adamw":
            point = adamw(point, slope, state, settings["rate"])
        elif settings["optimizer"] == "adafactor":
            point = adafactor(point, slope, state, settings["rate"])
        else:
            point = point - settings["rate"] * slope
        found.append(projected(model, point, allowed, settings["by"]))
        if settings["keeps"] == "projected":
            point = table(model)[found[-1]].clone()
    return found


def projected_descent(
    model: Any, first: list[int], rows: list[Any], allowed: list[int], settings: dict[str, Any], noise: Any = None
) -> list[list[int]]:
    """e <- Proj(e - rate * gradient + noise(step)); each step begins at a token's own embedding."""
    ids, found = first, []
    for step in range(settings["steps"]):
        _, slope = gradient(model, ids, rows, settings["start"], settings["fluency"])
        point = table(model)[ids] - settings["rate"] * slope
        ids = projected(model, point if noise is None else point + noise(step), allowed, "euclidean")
        found.append(ids)
    return found


def preferred(model: Any, slope: Tensor, allowed: list[int], count: int) -> list[int]:
    """The allowed tokens whose one-hot coordinate has the least gradient, least first, at one position."""
    return sorted(allowed, key=lambda token: float(slope @ table(model)[token]))[:count]


def value(model: Any, ids: list[int], rows: list[Any], start: list[int]) -> float:
    with torch.no_grad():
        return float(loss(model, table(model)[ids], rows, start))


def gcg_step(
    model: Any, ids: list[int], rows: list[Any], allowed: list[int], draws: list[tuple[int, int]], top: int
) -> list[int]:
    """Zou et al. 2023, Algorithm 1, one step; draws: (position, rank among the preferred) of each swap."""
    _, slope = gradient(model, ids, rows, [])
    best, best_value = ids, float("inf")
    for position, rank in draws:
        tried = list(ids)
        tried[position] = preferred(model, slope[position], allowed, top)[rank]
        if (now := value(model, tried, rows, [])) < best_value:
            best, best_value = tried, now
    return best


def autoprompt_step(
    model: Any, ids: list[int], rows: list[Any], allowed: list[int], position: int, top: int
) -> list[int]:
    """Shin et al. 2020, section 2.2, one step at a position."""
    before, slope = gradient(model, ids, rows, [])
    best, best_value = ids, before
    for token in preferred(model, slope[position], allowed, top):
        tried = [*ids[:position], token, *ids[position + 1 :]]
        if (now := value(model, tried, rows, [])) < best_value:
            best, best_value = tried, now
    return best
