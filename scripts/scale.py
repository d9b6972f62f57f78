"""The tables of docs/scale.md, from the cost model; the one of its check from benchmarks/results/costs.json.

Called by scripts/readme.py. Public shapes are those of the models' config.json; machines are data sheets, dense.
"""

import json
from collections.abc import Callable
from pathlib import Path

from tunescope.theory.costs import methods, serving, shards, training
from tunescope.theory.costs.machine import Machine
from tunescope.theory.costs.methods import Method
from tunescope.theory.costs.shapes import Shape
from tunescope.theory.costs.training import Batch

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "Llama 3.2 1B": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128_256, tied=True),
    "Llama 3.1 8B": Shape("llama", 32, 4096, 32, 8, 128, 14_336, 128_256),
    "Llama 3.1 70B": Shape("llama", 80, 8192, 64, 8, 128, 28_672, 128_256),
}
PRODUCTS, MOVING = 0.4, 0.6  # shares of the peaks that are attained, for all machines alike
GB, TB = 1e9, 1e12


def _machine(name: str, flops: float, bandwidth: float, memory: float, host: float, **several: float) -> Machine:
    devices, link, latency = int(several.get("devices", 1)), several.get("link", 0.0), several.get("latency", 0.0)
    return Machine(name, flops, PRODUCTS, bandwidth, MOVING, memory, host, devices, link, latency)


MACHINES = [
    _machine("L4", 121e12, 300 * GB, 24 * GB, 64 * GB),
    _machine("H100", 989e12, 3.35 * TB, 80 * GB, 256 * GB),
    _machine("H200", 989e12, 4.8 * TB, 141 * GB, 256 * GB),
    _machine("8 × H100", 989e12, 3.35 * TB, 80 * GB, 2 * TB, devices=8, link=450 * GB, latency=2e-5),
    _machine("CPU, 32 cores", 32 * 3.25e9 * 64, 460.8 * GB, 384 * GB, 384 * GB),
]
MAPS = ("attn.q", "attn.k", "attn.v", "attn.o", "ffn.in", "ffn.gate", "ffn.out")
METHODS = {
    "soft prompt of 100": Method("soft", 100),
    "prefix of 20": Method("prefix", 20),
    "prefix of 200": Method("prefix", 200),
    "LoRA of 8 on q, v": Method("lora", 8, ("attn.q", "attn.v")),
    "LoRA of 16 on all maps": Method("lora", 16, MAPS),
    "adapter of 64 on ffn": Method("adapter", 64, ("ffn",)),
}
TUNED = METHODS | {"full tuning": Method("full")}
BATCH = Batch(rows=8, tokens=512, labelled=8 * 128)
SAVING = Batch(rows=8, tokens=512, labelled=8 * 128, checkpointing=True)
BESIDE = serving.Load(rows=32, tokens=1024, different=32)
DIFFERENT = (1, 32, 256)
TOKENS = 512


def artifacts() -> str:
    """Parameters, bytes stored and bytes hot of one artifact."""
    rows = []
    for name, method in TUNED.items():
        cells = [
            f"{methods.trained(method, shape):,}<br>{size(methods.stored_bytes(method, shape))}; "
            f"{size(methods.hot_bytes(method, shape))}"
            for shape in MODELS.values()
        ]
        rows.append([name, *cells])
    return _table(["", *MODELS], rows)


def memory() -> str:
    """Memory of a training step, without checkpointing and with it."""
    rows = []
    for name, method in TUNED.items():
        sides = [
            [training.memory(method, shape, batch).total for batch in (BATCH, SAVING)] for shape in MODELS.values()
        ]
        rows.append([name, *(f"{size(plain)}; {size(saving)}" for plain, saving in sides)])
    return _table(["", *MODELS], rows)


def steps() -> str:
    """Seconds of a training step on each machine."""
    return _by_machine(TUNED, _step)


def _step(method: Method, shape: Shape, machine: Machine) -> str:
    for batch, mark in ((BATCH, ""), (SAVING, " c")):
        if training.memory(method, shape, batch).total <= machine.usable:
            return duration(training.seconds(method, shape, batch, machine)) + mark
    return "–"


def sharded() -> str:
    """70 billion parameters on eight H100: memory of each, without checkpointing and with it, and a step's time."""
    machine, shape = next(one for one in MACHINES if one.devices == 8), MODELS["Llama 3.1 70B"]
    rows = []
    for name, method in METHODS.items():
        cells = []
        for batch in (BATCH, SAVING):
            room = size(shards.memory(method, shape, batch, machine.devices).total)
            fits = shards.fits(method, shape, batch, machine)
            cells += [room + ("" if fits else " (too much)"), duration(shards.seconds(method, shape, batch, machine))]
        rows.append([name, *cells])
    head = ["", "memory of each", "a step", "memory, checkpointed", "a step, checkpointed"]
    return _table(head, rows)


def processes() -> str:
    """What several processes train against one, from the benchmark's result file: a row a method and order."""
    page = json.loads((ROOT / "benchmarks" / "results" / "sharding.json").read_text("utf-8"))
    found: dict[tuple[str, str], dict[str, float]] = {}
    for check in page["checks"]:
        method, order, count = check["name"].split("; ")
        found.setdefault((method, order), {})[count] = check["value"]
    counts = list(dict.fromkeys(count for row in found.values() for count in row))
    rows = [[*key, *(f"{row[count]:.1e}" if count in row else "" for count in counts)] for key, row in found.items()]
    return _table(["method", "order", *counts], rows)


def loading() -> str:
    """Private memory of processes that load a model and shard it, from the benchmark's result file."""
    page = json.loads((ROOT / "benchmarks" / "results" / "shard_memory.json").read_text("utf-8"))
    heads = {
        "processes": "processes",
        "type": "type",
        "loaded": "loaded",
        "most": "most until it is sharded",
        "sharded": "sharded",
        "step": "most in a step",
    }
    rows = [
        [f"{row[key]:.0%}" if isinstance(row[key], float) else str(row[key]) for key in heads]
        for row in page["settings"]["rows"]
    ]
    return _table(list(heads.values()), rows)


def full() -> str:
    """Bytes a parameter of full tuning, from the benchmark's result file."""
    page = json.loads((ROOT / "benchmarks" / "results" / "full_memory.json").read_text("utf-8"))
    found = {check["name"]: f"{check['value']:.1f}" for check in page["checks"]}
    types, ways = (list(dict.fromkeys(name.split(", ")[at] for name in found)) for at in (0, 1))
    return _table(["", *types], [[way, *(found[f"{one}, {way}"] for one in types)] for way in ways])


def fits() -> str:
    """How many artifacts stay hot beside the model and a batch; in brackets, how many the host holds as stored."""
    return _by_machine(METHODS, _fitting)


def _fitting(method: Method, shape: Shape, machine: Machine) -> str:
    on = serving.fits(method, shape, BESIDE, machine)
    if not on:
        return "–"
    return f"{on:,}" + ("" if "CPU" in machine.name else f" ({serving.fits_host(method, shape, machine):,})")


def decoding() -> str:
    """Milliseconds of a step bare, and what artifacts add, for 1, 32 and 256 rows with one each."""
    return _by_machine({"bare": Method("none"), **METHODS}, _decoding)


def _decoding(method: Method, shape: Shape, machine: Machine) -> str:
    cells = []
    for rows in DIFFERENT:
        load = serving.Load(rows, TOKENS, rows)
        if serving.memory(method, shape, load) > machine.usable:
            cells.append("–")
            continue
        time, bare = (serving.decode_seconds(one, shape, load, machine) for one in (method, Method("none")))
        cells.append(duration(bare) if method.kind == "none" else f"+{time / bare - 1:.1%}")
    return " / ".join(cells) if set(cells) != {"–"} else "–"


def prefill() -> str:
    """Time of reading 32 texts of 1,024 tokens with the bare model, a row a model."""
    rows = [[title, *(_prefill(shape, machine) for machine in MACHINES)] for title, shape in MODELS.items()]
    return _table(["", *(machine.name for machine in MACHINES)], rows)


def _prefill(shape: Shape, machine: Machine) -> str:
    load, bare = serving.Load(rows=32, tokens=1024), Method("none")
    if serving.memory(bare, shape, load) > machine.usable:
        return "–"
    return duration(serving.prefill_seconds(bare, shape, load, machine))


def checked() -> str:
    """Predicted over measured, from the benchmark's result file."""
    page = json.loads((ROOT / "benchmarks" / "results" / "costs.json").read_text("utf-8"))
    within, rows = page["settings"]["within"], []
    for row in page["ratios"]:
        spread = f"{row['low']:.2f} to {row['high']:.2f}" if row["rounds"] > 1 else ""
        unit = "ms" if row["quantity"] == "time" else "MB"
        what = f"{row['case']}, {row['quantity']}"
        rows.append([what, f"{row['value']:,.0f} {unit}", _off(row["ratio"], within), spread])
    return _table(["", "predicted", "predicted / measured", "over rounds"], rows)


def _off(ratio: float, within: float) -> str:
    return f"{ratio:.2f}" + ("" if abs(ratio - 1) <= within else " (missed)")


def executors() -> str:
    """One comparison on every executor, from the benchmark's result file."""
    page = json.loads((ROOT / "benchmarks" / "results" / "executors.json").read_text("utf-8"))
    rows = []
    for row in page["settings"]["rows"]:
        kills = f"{row['kills']} {row['killed']}{'s' * (row['kills'] > 1)}" if row["kills"] else "–"
        slots = row["workers"] or "–"
        equal = {True: "yes", False: "no", None: "the measure"}[row.get("equal")]
        cells = [
            f"`{row['executor']}`",
            row["nodes"],
            slots,
            row["jobs"],
            row["goes"],
            kills,
            equal,
            f"{row['seconds']} s",
        ]
        rows.append([str(cell) for cell in cells])
    return _table(["executor", "nodes", "workers", "runs", "times typed", "killed", "equal numbers", "wall"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "artifacts": artifacts,
    "memory": memory,
    "steps": steps,
    "sharded": sharded,
    "processes": processes,
    "full": full,
    "loading": loading,
    "fits": fits,
    "decoding": decoding,
    "prefill": prefill,
    "checked": checked,
    "executors": executors,
}


def _by_machine(named: dict[str, Method], cell: Callable[[Method, Shape, Machine], str]) -> str:
    """One table a model: methods down, machines across."""
    tables = []
    for title, shape in MODELS.items():
        rows = [[name, *(cell(method, shape, machine) for machine in MACHINES)] for name, method in named.items()]
        tables.append(_table([f"**{title}**", *(machine.name for machine in MACHINES)], rows))
    return "\n\n".join(tables)


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def size(count: float) -> str:
    """Bytes in decimal units, as data sheets have them."""
    for unit, each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= each:
            return f"{count / each:.3g} {unit}" if count < 999.5 * each else f"{count / each:,.0f} {unit}"
    return f"{count / 1e3:.3g} kB"


def duration(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
