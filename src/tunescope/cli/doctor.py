"""`tunescope doctor`: what this machine has, and whether a model can be reached."""

from collections.abc import Iterator

import torch

from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.report.text import memory
from tunescope.system import cgroup, machine


def lines(model: str | None) -> Iterator[str]:
    """Versions, cores and threads, memory, devices; of a model its kind, its attention modules and its sites."""
    yield ", ".join(f"{name} {version}" for name, version in machine.versions().items())
    yield f"{machine.cores()} cores, {torch.get_num_threads()} torch threads in this process"
    yield f"memory that may be taken: {memory(machine.free_memory() / 2**20)}{_container()}"
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    devices += ["mps (taken by --device mps alone; nobody has tried it here)"] if machine.has_mps() else []
    yield "devices: " + ", ".join(["cpu", *devices])
    if model is None:
        yield "to see whether a model can be tuned, type: tunescope doctor --model MODEL"
    else:
        yield from _model(model)


def _container() -> str:
    """What its limits leave, where there are any; the cores and the memory above are the least of these."""
    cpus, left = cgroup.cpus(), cgroup.free_memory()
    told = [] if cpus is None else [f"{cpus} core{'s' * (cpus > 1)}"]
    told += [] if left is None else [f"{memory(left / 2**20)} of memory"]
    return f" (this container is left {' and '.join(told)})" if told else ""


def _model(name: str) -> Iterator[str]:
    """Raises UserError where the model cannot be loaded; what it does not allow is told."""
    from tunescope.attachment.attention.reach import reached
    from tunescope.attachment.attention.trial_inputs import takes_tokens
    from tunescope.attachment.proof import differences
    from tunescope.models.anatomy import anatomy
    from tunescope.models.load import load_model

    model, _ = load_model(name)
    size = sum(p.numel() for p in model.parameters())
    yield f"{name}: {model.config.model_type}, {anatomy(model).kind}, {size:,} parameters"
    try:
        yield f"attention: all {len(reached(model))} modules call the tunescope function; contexts can be attached"
        found = differences(model)
        if takes_tokens(model) and (why := found.untried_words or found.untried_free):
            yield f"attention: whether contexts are right with padding and windows was not tried: {why}"
    except UserError as problem:
        yield f"attention: not reached, so no contexts: {problem}"
    try:
        sites = sorted({name.split(".", 2)[-1] for name in sites_of(model)})
        yield f"sites (attn stands for self and cross): {', '.join(sites)}"
    except UserError as problem:
        yield f"sites: none, so no deltas that need one: {problem}"
