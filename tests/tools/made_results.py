"""Results of comparisons made by hand, for the rules that read them."""

RISING = (0.5, 0.6, 0.7, 0.8)  # dev at each quarter of the steps
FLAT = (0.5, 0.8, 0.8, 0.8)


def arm(name, group, score=None, dev=None, *, status="done", half=0.015, curve=FLAT, **run):
    if status != "done":
        return {"name": name, "group": group, "status": status, "reason": "", "runs": [], "score": None}
    points = [{"step": 100 * (i + 1), "loss": 1.0, "dev": y} for i, y in enumerate(curve)]
    runs = [{"seed": s, "dev": score if dev is None else dev, "curve": points, "stats": [], **run} for s in (0, 1, 2)]
    interval = [score - half, score + half]
    return {
        "name": name,
        "group": group,
        "status": "done",
        "runs": runs,
        "score": score,
        "interval": interval,
    }


def results(*arms, gaps=(), metric="accuracy", chance=0.5, seeds=(0, 1, 2)):
    """Comparisons default to the difference of the scores, give or take 0.015; `gaps` overrides some."""
    done = [a for a in arms if a["status"] == "done"]
    said = {(a, b): (low, high) for a, b, low, high in gaps}
    comparisons = []
    for i, a in enumerate(done):
        for b in done[i + 1 :]:
            difference = a["score"] - b["score"]
            low, high = said.get((a["name"], b["name"]), (difference - 0.015, difference + 0.015))
            one = {"a": a["name"], "b": b["name"], "difference": difference, "interval": [low, high]}
            comparisons.append(one | {"level": 0.95})
    return {
        "version": 1,
        "task": {"kind": "classification", "metric": metric, "higher_is_better": True, "chance": chance},
        "data": {"test": {"rows": 500}},
        "protocol": {"budget": 98_304, "steps": 400, "seeds": list(seeds), "looks": None},
        "arms": list(arms),
        "comparisons": comparisons,
    }


ZERO = arm("zero-shot", "none", 0.52)
SHOTS = arm("4-shot", "text", 0.61)
PREFIX = arm("prefix", "context", 0.90)
LORA = arm("lora", "delta", 0.90)
