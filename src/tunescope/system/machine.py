"""This machine: its cores, memory and device, the versions of what runs on it, and how much memory a run took."""

import ctypes
import gc
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tunescope.errors import UserError
from tunescope.system import cgroup
from tunescope.system.interrupts import interrupts_held
from tunescope.system.package_version import package_version

try:
    import resource
except ImportError:
    raise UserError(
        "Python has no module 'resource' here, as on Windows: tunescope runs on Linux. Under Windows, run it in WSL2; "
        "type: wsl --install"
    ) from None


def versions() -> dict[str, str]:
    names = ("tunescope", "torch", "transformers")
    return {name: package_version(name) for name in names} | {"python": platform.python_version()}


def describe(device: torch.device, threads: int) -> dict[str, str | int]:
    """No host or user name: this goes into results that people share."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"cpu": _cpu(), "cores": cores(), "threads": threads, "device": name}


def cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    may = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(may, cgroup.cpus() or may)


def free_memory() -> int:
    """Bytes that this process may take without swapping: what the machine has available, or its container less."""
    import psutil

    available, allowed = int(psutil.virtual_memory().available), cgroup.free_memory()
    return available if allowed is None else min(available, allowed)


def busy() -> str:
    """That other programs want more than this machine has, of which whatever is timed suffers; "" where none do."""
    import psutil

    wanted, has = psutil.getloadavg()[0], psutil.cpu_count() or 1
    if wanted < 2 * has + 1:
        return ""
    return (
        f"about {wanted:.0f} processes share this machine's {has} core{'s' * (has > 1)} now: what was timed here may "
        f"be {wanted / has:.0f} times as slow as on an idle machine"
    )


def gpus() -> list[int] | None:
    """For torch.random.fork_rng, which warns at length of several that are not named; None: as torch does by itself."""
    several = torch.cuda.device_count()
    return list(range(several)) if several > 1 else None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it torch draws as behind torch.manual_seed(seed); afterwards its generators, of GPUs too, are as before.

    Where there is no accelerator, torch.manual_seed would note for three kinds of them what to do should one come, with
    the stack of its caller in words, at each call.
    """
    with torch.random.fork_rng(gpus()):
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(int(seed))  # NumPy's too, as torch takes them
        yield


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_named(name: str) -> torch.device:
    """The device of that name: cpu, cuda, cuda:1, mps. UserError for one that this machine does not have."""
    has = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())), *(["mps"] if has_mps() else [])]
    if name in has or (name == "cuda" and "cuda:0" in has):
        return torch.device(name)
    why = "" if len(has) > 1 else f" torch {torch.__version__} sees no other."
    raise UserError(f"--device {name!r} is not here; this machine has: {', '.join(has)}.{why} Type: --device {has[-1]}")


def has_mps() -> bool:
    """Whether torch sees a GPU of Apple's, which is taken only where it is typed."""
    return bool(torch.backends.mps.is_available())


def precision_on(device: torch.device, asked: str) -> str:
    """bfloat16 or float32: which one `auto` is on this device, bfloat16 where its own units compute in it."""
    if asked != "auto":
        return asked
    return "bfloat16" if device.type == "cuda" and _has_bfloat16(device) else "float32"


def _has_bfloat16(device: torch.device) -> bool:
    """Torch itself counts what older GPUs of NVIDIA emulate, slower than float32."""
    if torch.version.hip is not None:
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cuda.get_device_capability(device) >= (8, 0))


def default_workers(model: str | Path, device: str = "") -> int:
    """One a core for a model that is here, as far as memory goes at 24 bytes a parameter each; else 1.

    24: weights, gradients, two moments, the best tensors, and the rows' activations, as if all were tuned in float32;
    a checkpoint of 16 bits takes as much, for what is tuned has float32 beside it. A GPU has one: all GPUs are taken
    where the device is cuda, without a number. device: where there is none, that which is taken of itself.
    """
    if device == "cuda":
        return max(1, torch.cuda.device_count())
    folder = _folder(model)
    parameters = sum(map(_parameters, folder.glob("*.safetensors"))) if folder else 0
    if (device or default_device().type) != "cpu" or not parameters:
        return 1
    return max(1, min(cores(), free_memory() // (24 * parameters + 2**29)))


def _parameters(file: Path) -> int:
    """How many numbers a safetensors file holds, by its head."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except (SafetensorError, OSError):  # which loading tells better
        return file.stat().st_size // 4


def _folder(model: str | Path) -> Path | None:
    """The folder that a model is in: its own, or that of the hub's cache; None where it is not here yet."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(model).is_dir():
        return Path(model)
    try:
        found = try_to_load_from_cache(str(model), "config.json")
    except HFValidationError:  # a path, and no name on the hub
        return None
    return Path(found).parent if isinstance(found, str) else None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory_meter(*devices: torch.device) -> Callable[[], float]:
    """Start measuring; the function returned gives megabytes, of all devices together.

    cuda: the most that torch had allocated on each, the base model included. Elsewhere: how far the peak of resident
    memory rose above what was resident at the start; where the kernel cannot reset its peak (anything but
    Linux), a run that needs less than an earlier one in the same process shows 0.
    """
    if all(device.type == "cuda" for device in devices):
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        return lambda: float(sum(map(torch.cuda.max_memory_allocated, devices))) / 2**20
    _return_freed_memory()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        start = _status("VmRSS")
        return lambda: max(0.0, _status("VmHWM") - start)
    except (OSError, ValueError):
        before = _peak_resident()
        return lambda: max(0.0, _peak_resident() - before)


def _return_freed_memory() -> None:
    """Without this the memory an earlier run freed hides what the next one takes."""
    with interrupts_held():
        gc.collect(1)  # of everything takes longer than a small run
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def _status(field: str) -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise ValueError(field)


def _peak_resident() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
