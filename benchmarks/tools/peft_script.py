"""What a person writes with peft and torch to compare five methods, three rates and three seeds: every run in full.

python -m benchmarks.tools.peft_script MODEL DATA_FOLDER SKILL OUT.json STEPS ROWS METHODS SEEDS

Rates are chosen by the mean development score over the seeds, and the test rows are scored by the chosen runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup, set_seed

from benchmarks.tools.comparing import RANK_ALL, RANK_QV, RATES, TOKENS

BATCH, IGNORED = 32, -100
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def configs(width: int) -> dict[str, Any]:
    kind: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    return {
        "soft": PromptTuningConfig(**kind, num_virtual_tokens=TOKENS),
        "prefix": PrefixTuningConfig(**kind, num_virtual_tokens=TOKENS),
        "prefix by a network": PrefixTuningConfig(
            **kind, num_virtual_tokens=TOKENS, prefix_projection=True, encoder_hidden_size=width
        ),
        "LoRA on q, v": LoraConfig(**kind, r=RANK_QV, lora_alpha=RANK_QV, target_modules=["q_proj", "v_proj"]),
        "LoRA on all maps": LoraConfig(**kind, r=RANK_ALL, lora_alpha=RANK_ALL, target_modules=EVERY),
    }


def encoded(rows: list[dict[str, str]], words: Any) -> list[tuple[list[int], list[int]]]:
    made = []
    for row in rows:
        target = words(row["target"], add_special_tokens=False)["input_ids"]
        made.append((words(row["input"])["input_ids"], [*target, words.eos_token_id]))
    return made


def batch(rows: list[tuple[list[int], list[int]]], pad: int) -> dict[str, Tensor]:
    most = max(len(source) + len(target) for source, target in rows)
    ids = [source + target + [pad] * (most - len(source) - len(target)) for source, target in rows]
    mask = [[1] * (len(s) + len(t)) + [0] * (most - len(s) - len(t)) for s, t in rows]
    labels = [[IGNORED] * len(s) + t + [IGNORED] * (most - len(s) - len(t)) for s, t in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(labels)}


def trained(model: Any, rows: list[tuple[list[int], list[int]]], rate: float, steps: int, pad: int) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.06 * steps), steps)
    order = torch.randint(len(rows), (steps, BATCH))
    model.train()
    for some in order:
        loss = model(**batch([rows[i] for i in some], pad)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.eval()


@torch.no_grad()
def score(model: Any, rows: list[tuple[list[int], list[int]]], pad: int) -> float:
    """Exact matches of greedy answers; all inputs have one length here, so none needs padding."""
    right = 0
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        ids = torch.tensor([source for source, _ in some])
        most = max(len(target) for _, target in some)
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=most,
            do_sample=False,
            pad_token_id=pad,
        )
        for written, (_, target) in zip(out[:, ids.shape[1] :].tolist(), some, strict=True):
            right += written[: len(target)] == target
    return right / len(rows)


def main(folder: str, data: str, skill: str, out: str, sizes: tuple[int, ...]) -> None:
    steps, most, methods, seeds = sizes
    words = AutoTokenizer.from_pretrained(folder)
    parts = {}
    for part in ("train", "dev", "test"):
        lines = (Path(data) / f"{skill}.{part}.jsonl").read_text().splitlines()[:most]
        parts[part] = encoded([json.loads(line) for line in lines], words)
    pad = words.pad_token_id
    found: dict[str, float] = {}
    for name, rates in list(RATES.items())[:methods]:
        dev: dict[float, float] = {}
        test: dict[float, float] = {}
        for rate in rates:
            scores = []
            for seed in range(seeds):
                set_seed(seed)
                base = AutoModelForCausalLM.from_pretrained(folder)
                model = get_peft_model(base, configs(base.config.hidden_size)[name])
                trained(model, parts["train"], rate, steps, pad)
                scores.append((score(model, parts["dev"], pad), score(model, parts["test"], pad)))
            dev[rate], test[rate] = (statistics.fmean(one[i] for one in scores) for i in (0, 1))
        found[name] = test[max(rates, key=dev.__getitem__)]
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5], tuple(map(int, sys.argv[5:])))
