"""How many cores and how much memory a process may take: of the machine, and of the container it is in."""

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import tinyrun
import torch
from transformers import AutoModelForCausalLM

from tunescope.cli import doctor
from tunescope.system import cgroup, machine

GIB = 2**30


def tree(root, **files):
    """A made-up /proc and /sys: path -> content, as the kernel writes them."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content + "\n")
    return root


def memory_2(group, most, used, *, active=0, inactive=0, high="max"):
    place = f"sys/fs/cgroup/{group}"
    stat = f"anon 5\nfile 9\nshmem 4\nactive_file {active}\ninactive_file {inactive}\nunevictable 3"
    return {
        f"{place}memory.max": str(most),
        f"{place}memory.high": str(high),
        f"{place}memory.current": str(used),
        f"{place}memory.stat": stat,
    }


def memory_1(group, most, used, *, active=0, inactive=0):
    place = f"sys/fs/cgroup/memory/{group}"
    own = "cache 1\nactive_file 1\ninactive_file 2\n"  # the group's own, without those inside of it
    return {
        f"{place}memory.limit_in_bytes": str(most),
        f"{place}memory.usage_in_bytes": str(used),
        f"{place}memory.stat": f"{own}total_active_file {active}\ntotal_inactive_file {inactive}",
    }


SELF_2 = {"proc/self/cgroup": "0::/a/b"}
SELF_1 = {"proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/\n0::/"}
NONE_1 = 9223372036854771712


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, None),
        (SELF_2 | memory_2("", "max", 7 * GIB), None),
        (SELF_2 | memory_2("", 4 * GIB, 3 * GIB), GIB),  # a container's own group is the mount
        (SELF_2 | memory_2("", 4 * GIB, 3 * GIB, active=GIB, inactive=GIB // 2), 2 * GIB + GIB // 2),
        (SELF_2 | memory_2("a/b/", 4 * GIB, GIB), 3 * GIB),
        (SELF_2 | memory_2("a/b/", 4 * GIB, GIB) | memory_2("a/", 5 * GIB, 4 * GIB), GIB),  # its parent is tighter
        (SELF_2 | memory_2("a/b/", "max", GIB) | memory_2("a/", 5 * GIB, 4 * GIB), GIB),
        (SELF_2 | memory_2("other/", GIB, GIB), None),
        (SELF_2 | memory_2("", 4 * GIB, GIB, high=2 * GIB), GIB),
        (SELF_2 | memory_2("", GIB, 2 * GIB), 0),
        (SELF_2 | {"sys/fs/cgroup/memory.max": str(GIB)}, None),  # its use is not told
        (SELF_2 | memory_2("", "rubbish", GIB), None),
        ({"proc/self/cgroup": "0::/../up"} | memory_2("", 2 * GIB, GIB), GIB),
        (SELF_1 | memory_1("", NONE_1, GIB), None),
        (SELF_1 | memory_1("", 4 * GIB, 3 * GIB, active=GIB, inactive=GIB // 2), 2 * GIB + GIB // 2),
        (SELF_1 | memory_1("docker/x/", 4 * GIB, GIB) | memory_1("", NONE_1, 9 * GIB), 3 * GIB),
        (SELF_1 | memory_1("docker/", 2 * GIB, GIB) | memory_1("docker/x/", 4 * GIB, GIB), GIB),
    ],
)
def test_a_limit_less_what_is_used_counts_cached_files_as_free(tmp_path, files, left):
    assert cgroup.free_memory(tree(tmp_path, **files)) == left


def cfs(group, quota, period=100000):
    place = f"sys/fs/cgroup/cpu/{group}"
    return {f"{place}cpu.cfs_quota_us": str(quota), f"{place}cpu.cfs_period_us": str(period)}


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, None),
        (SELF_2 | {"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (SELF_2 | {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        (SELF_2 | {"sys/fs/cgroup/cpu.max": "210000 100000"}, 3),
        (SELF_2 | {"sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, 1),
        (SELF_2 | {"sys/fs/cgroup/a/cpu.max": "100000 50000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 2),
        (SELF_2 | {"sys/fs/cgroup/a/cpu.max": "400000 100000", "sys/fs/cgroup/a/b/cpu.max": "100000 100000"}, 1),
        (SELF_2 | {"sys/fs/cgroup/cpu.max": "100000"}, None),
        (SELF_1 | cfs("", -1), None),
        (SELF_1 | cfs("", 150000), 2),
        (SELF_1 | cfs("docker/x/", 300000) | cfs("", -1), 3),
    ],
)
def test_a_quota_of_cpu_is_rounded_up_to_whole_cores(tmp_path, files, count):
    assert cgroup.cpus(tree(tmp_path, **files)) == count


@pytest.mark.parametrize(
    "files",
    [
        {},
        *({"sys/fs/cgroup/cpu.max": f"{quota} 100000"} for quota in ("max", 1, 100000, 100001, 1600000)),
        *(cfs("", quota) for quota in (-1, 1, 99999, 150000, 200000)),
    ],
)
def test_a_quota_is_read_as_loky_reads_it(tmp_path, monkeypatch, files):
    loky = pytest.importorskip("joblib.externals.loky.backend.context", reason="joblib brings loky")
    tree(tmp_path, **files)
    paths = SimpleNamespace(exists=lambda path: os.path.exists(f"{tmp_path}{path}"))
    monkeypatch.setattr(loky, "os", SimpleNamespace(path=paths))
    monkeypatch.setattr(loky, "open", lambda path: io.StringIO(Path(f"{tmp_path}{path}").read_text()), raising=False)
    assert (cgroup.cpus(tmp_path) or 64) == loky._cpu_count_cgroup(64)


def test_memory_is_what_psutil_calls_available_and_no_more_than_the_container_leaves(monkeypatch):
    monkeypatch.setattr(cgroup, "free_memory", lambda: None)
    assert machine.free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.05)
    monkeypatch.setattr(cgroup, "free_memory", lambda: 12345)
    assert machine.free_memory() == 12345
    monkeypatch.setattr(cgroup, "free_memory", lambda: 2**60)
    assert machine.free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.05)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_cores_are_those_of_the_mask_and_no_more_than_the_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5, 6})
    for quota, count in ((None, 4), (3, 3), (64, 4)):
        monkeypatch.setattr(cgroup, "cpus", lambda quota=quota: quota)
        assert machine.cores() == count


def test_cores_are_as_many_as_loky_counts(monkeypatch):
    loky = pytest.importorskip("joblib.externals.loky.backend.context", reason="joblib brings loky")
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    assert machine.cores() == loky.cpu_count()


def test_processes_are_as_many_as_available_memory_and_the_container_take(tmp_path, monkeypatch):
    folder = Path(tinyrun.write(tmp_path)[0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine, "cores", lambda: 8)
    model = AutoModelForCausalLM.from_pretrained(folder)
    one = 24 * model.num_parameters() + 2**29
    memory = psutil.virtual_memory()._replace(available=3 * one + 1, free=0)  # the rest of it is cached files
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(cgroup, "free_memory", lambda: None)
    assert machine.default_workers(folder) == 3
    monkeypatch.setattr(cgroup, "free_memory", lambda: 2 * one)
    assert machine.default_workers(folder) == 2
    monkeypatch.setattr(cgroup, "free_memory", lambda: 0)
    assert machine.default_workers(folder) == 1
    model.to(torch.bfloat16).save_pretrained(folder)  # what is tuned is in float32 all the same
    with monkeypatch.context() as large:
        large.setattr(cgroup, "free_memory", lambda: 4 * 24 * 10**9)
        large.setattr(machine, "_parameters", lambda file: 10**9)
        large.setattr(psutil, "virtual_memory", lambda: memory._replace(available=10**12))
        assert machine.default_workers(folder) == 3  # 24 bytes a parameter, and half a gigabyte
    (file,) = folder.glob("*.safetensors")
    assert machine._parameters(file) == model.num_parameters()
    file.write_bytes(b"torn")
    assert machine.default_workers(folder) == 1


def test_a_gpu_has_one_process_and_a_cpu_beside_it_as_many_as_ever(tmp_path, monkeypatch):
    folder = Path(tinyrun.write(tmp_path)[0])
    monkeypatch.setattr(machine, "cores", lambda: 3)
    monkeypatch.setattr(machine, "free_memory", lambda: 2**40)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [machine.default_workers(folder, device) for device in ("cpu", "cuda", "cuda:1", "mps", "")]
    assert found == [3, 2, 1, 1, 1]


def test_auto_is_bfloat16_on_gpus_whose_own_units_compute_in_it(monkeypatch):
    """Compute capabilities as NVIDIA lists them: T4 7.5, V100 7.0, A100 8.0, RTX 30 8.6, H100 9.0."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)  # emulated
    kinds = [(7, 5), (7, 0), (8, 0), (8, 6), (9, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: kinds[device.index])
    found = [machine.precision_on(torch.device("cuda", index), "auto") for index in range(5)]
    assert found == ["float32", "float32", "bfloat16", "bfloat16", "bfloat16"]
    assert machine.precision_on(torch.device("cuda", 0), "bfloat16") == "bfloat16"
    assert machine.precision_on(torch.device("cpu"), "auto") == "float32"
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert machine.precision_on(torch.device("cuda", 0), "auto") == "bfloat16"


def test_the_memory_of_a_model_on_several_gpus_is_that_of_all(monkeypatch):
    taken = {0: 3 * 2**20, 1: 5 * 2**20, 2: 7 * 2**20}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: taken[device.index])
    assert machine.memory_meter(torch.device("cuda", 1))() == 5
    assert machine.memory_meter(torch.device("cuda", 0), torch.device("cuda", 2))() == 10


def test_generators_are_put_back_without_a_warning_where_there_are_several_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert machine.gpus() == [0, 1, 2]
    states = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states.append(device))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.random.fork_rng(machine.gpus()):
            pass
    assert states == [0, 1, 2]
    rooms = [Path(machine.__file__).parents[1] / name for name in ("comparison", "lab", "reproduce")]
    files = [path for room in rooms for path in room.rglob("*.py")]
    assert not [path for path in files if "fork_rng()" in path.read_text()]


def test_the_doctor_tells_the_memory_and_what_a_container_leaves(monkeypatch):
    memory = psutil.virtual_memory()._replace(available=8 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(cgroup, "free_memory", lambda: None)
    monkeypatch.setattr(cgroup, "cpus", lambda: None)
    assert "memory that may be taken: 8.0 GB" in list(doctor.lines(None))
    monkeypatch.setattr(cgroup, "free_memory", lambda: 3 * GIB)
    monkeypatch.setattr(cgroup, "cpus", lambda: 1)
    told = list(doctor.lines(None))
    assert told[1].startswith("1 cores, ")
    assert "memory that may be taken: 3.0 GB (this container is left 1 core and 3.0 GB of memory)" in told


def test_the_doctor_lists_a_gpu_of_apples_where_torch_has_it(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert not any("mps" in line for line in doctor.lines(None))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert any(line.startswith("devices: cpu") and ", mps (" in line for line in doctor.lines(None))
    assert machine.default_device().type != "mps"  # it is taken only where it is typed
    assert machine.device_named("mps") == torch.device("mps")


def test_where_python_has_no_module_resource_as_on_windows_that_is_said_in_one_line():
    code = "import psutil, sys; sys.modules['resource'] = None; import tunescope.__main__ as door; door.main()"
    found = subprocess.run([sys.executable, "-c", code, "doctor"], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1 and "as on Windows" in found.stderr and "wsl --install" in found.stderr


@pytest.mark.parametrize("seed", [5, np.int64(5), -5])
def test_seeded_is_as_torch_s_seed_and_leaves_its_generator_as_it_was(monkeypatch, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = torch.randn(7)
        torch.manual_seed(1)
        before = torch.get_rng_state()
        with monkeypatch.context() as patched:  # which would be kept in words for devices that are not here
            patched.setattr("traceback.format_stack", lambda: pytest.fail("a stack was put into words"))
            with machine.seeded(seed):
                assert torch.equal(torch.randn(7), expected)
        assert torch.equal(torch.get_rng_state(), before)


def test_where_there_is_an_accelerator_it_is_seeded_too(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    with machine.seeded(3):
        assert seeds == [3]
