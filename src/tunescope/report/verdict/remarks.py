"""What a reader should know of how an arm's answers were had, in sentences, from its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.report.verdict.edges import untold

Run = Mapping[str, Any]

RULES = {
    "best": "the order with the best development score is taken, which favours that score but not the test's",
    "entropy": "the order under which answers to the model's own inputs spread best over the labels is taken (GlobalE)",
}


def remarks(runs: Sequence[Run]) -> list[str]:
    """Sentences for the table and the page; none for most arms."""
    shown = {run["seed"]: run["demonstrations"] for run in runs if run.get("demonstrations")}
    found = next((_own(one) for one in shown.values() if one["each"]), [])
    found += _orders({seed: one["orders"] for seed, one in shown.items() if one.get("orders")})
    found += _priors({seed: one["prior"] for seed, one in shown.items() if one.get("prior")})
    return found + _readings({run["seed"]: run["reading"] for run in runs if run.get("reading")})


def rate_remarks(trials: Sequence[Run]) -> list[str]:
    """What learning rates nothing is known of, so that none of them could be chosen."""
    return [f"Not tried: learning rate {one}." for one in untold({"trials": trials})]


WHICH = {
    "nearest": "the training rows most like it",
    "similar": "drawn from the half of {of} that is most like it",
}


def _own(one: Mapping[str, Any]) -> list[str]:
    """Of demonstrations that every query has of its own."""
    which = WHICH.get(one.get("choose", "nearest"), "drawn for it").format(of=one.get("of"))
    kept = "so there is no one context to save: no artifact"
    if one.get("trained"):
        anew = "" if one["choose"] == "nearest" else ", and they are drawn anew whenever it is looked at"
        kept = f"and what was trained is saved without them; in training a row is never among its own{anew}"
    said = [f"Every query has demonstrations of its own, {which}, {kept}."]
    if one.get("sets", 1) > 1:
        said.append(
            f"Each query is answered by the mean of its labels' scores behind {one['sets']} draws of demonstrations, "
            f"which takes {one['passes']} passes a query."
        )
    return said


def _readings(found: Mapping[int, Mapping[str, float]]) -> list[str]:
    """What was read out of written answers; nothing where every answer could be read and none was voted on."""
    lost = {seed: round(one["unread"] * one["rows"]) for seed, one in found.items()}
    said = []
    if any(lost.values()):
        counts = ", ".join(f"{count:,} of {found[seed]['rows']:,} (seed {seed})" for seed, count in lost.items())
        said.append(f"No answer could be read in {counts} test rows, which count as wrong.")
    votes = ", ".join(f"{one['vote']:.3f} (seed {seed})" for seed, one in found.items() if "vote" in one)
    if votes:
        said.append(
            f"The answer taken had this share of the samples, on average: {votes}; ties go to the answer that was "
            "sampled first, and samples without an answer count against it."
        )
    return said


def _orders(found: Mapping[int, Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    first = next(iter(found.values()))
    spreads = [
        f"from {one['min']:.3f} to {one['max']:.3f} (mean {one['mean']:.3f}, deviation {one['sd']:.3f}, "
        f"taken {one['dev'][one['chosen']]:.3f}; seed {seed})"
        for seed, one in found.items()
    ]
    possible = f"{first['possible']:,}" if first["possible"] else "more than 10^15"
    return [
        f"Order alone moves the development score {', '.join(spreads)}, over {first['tried']:,} of the "
        f"{possible} orders of the same demonstrations; {RULES[first['rule']]}."
    ]


def _priors(found: Mapping[int, Mapping[str, float]]) -> list[str]:
    if not found:
        return []
    seen = [
        f"{', '.join(f'{label} {share:.3f}' for label, share in prior.items())} (seed {seed})"
        for seed, prior in found.items()
    ]
    return [
        f"Calibrated: the labels' probabilities for inputs without content, {'; '.join(seen)}, are divided out of the "
        "answers. They are saved with the artifact, as its task's prior."
    ]
