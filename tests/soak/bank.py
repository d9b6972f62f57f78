"""A bank of a thousand saved artifacts under load: every row equal to its artifact alone, and memory flat.

Batches ask for eight names at random while another thread takes names out and puts them back; of each batch a row is
held against that artifact attached alone to a model of its own. --count: seconds (ten minutes).
"""

import gc
import random
import threading
import time

import psutil

SECONDS, ARTIFACTS, ROWS = 600, 1000, 8
HOT = 2**20  # bytes at hand: a fraction of them all, so that folders are read again and again
ARMS = (
    "prefix:length=3",
    "soft:length=4",
    "lora:rank=2",
    "prefix:length=2+adapter:bottleneck=3,placement=parallel,sites=ffn",
    "text:text=w5 w6 w7",
)
CLOSE = 1e-12
GROWTH = 2**25  # bytes that a process may be larger at the end than after a tenth of the time


def run(folder, seed, count):
    """Figures of so many seconds."""
    import tiny
    import torch

    import tunescope as ts

    draw, seconds = random.Random(seed), count or SECONDS
    model, alone = tiny.make("gpt2"), tiny.make("gpt2")
    number = ARTIFACTS if seconds >= SECONDS else 40
    for index in range(number):
        artifacts = tiny.away(model, ARMS[index % len(ARMS)], index)
        ts.save(folder / f"customer {index}", artifacts, model=model, tokenizer=tiny.tokenizer())
    bank, faults, stop = ts.Bank.folder(folder, hot=HOT), [], threading.Event()
    changes = threading.Thread(target=come_and_go, args=(bank, folder, number, stop, faults), daemon=True)
    sizes, checked, batches, worst, begun = [], 0, 0, 0.0, time.monotonic()
    with ts.attach(model, bank, tokenizer=tiny.tokenizer()), torch.inference_mode():
        changes.start()
        while time.monotonic() - begun < seconds and not faults:
            names = [f"customer {draw.randrange(number - 1)}" for _ in range(ROWS - 1)] + [None]
            given = {"input_ids": tiny.ids(ROWS, 6, seed=batches), "attention_mask": torch.ones(ROWS, 6).long()}
            together = model(**given, rows=names).logits
            row = draw.randrange(ROWS)
            worst = max(
                worst,
                difference(
                    alone, together[row], {key: v[row : row + 1] for key, v in given.items()}, names[row], folder
                ),
            )
            if worst > CLOSE:
                faults.append(f"batch {batches}, {names[row]}: {worst:.1e} off")
            batches, checked = batches + 1, checked + 1
            if batches % 50 == 0:
                gc.collect()
                sizes.append((time.monotonic() - begun, psutil.Process().memory_info().rss))
        stop.set()
        changes.join()
    settled = [size for at, size in sizes if at > seconds / 10]
    growth = settled[-1] - settled[0] if len(settled) > 1 else 0
    if growth > GROWTH:
        faults.append(f"the process grew by {growth:,} bytes")
    return {
        "faults": faults,
        "tries": checked,
        "artifacts": number,
        "rows": batches * ROWS,
        "largest difference": worst,
        "growth": growth,
        "bytes at hand": HOT,
    }


def difference(alone, found, given, name, folder):
    """Of a row's logits from those with its artifact attached alone, or with nothing."""
    from contextlib import nullcontext

    import tunescope as ts

    with nullcontext() if name is None else ts.attach(alone, *ts.load(folder / name)):
        return float((alone(**given).logits[0] - found).abs().max())


def come_and_go(bank, folder, number, stop, faults):
    """The last name is taken out and put back all the time."""
    name = f"customer {number - 1}"
    try:
        while not stop.wait(0.01):
            bank.remove(name)
            bank.add(name, folder / name)
    except Exception as problem:
        faults.append(f"while names come and go: {problem!r}")
