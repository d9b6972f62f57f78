"""What a container leaves this process of the machine: the limits of its control groups, versions 1 and 2.

Linux alone has them; elsewhere, and where a file is not as the kernel writes it, there is no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/")
UNLIMITED = 2**62  # version 1 writes about 2**63 where there is no limit


def free_memory(root: Path = SYSTEM) -> int | None:
    """Bytes that may still be taken before the kernel reclaims more than file cache; None without a limit.

    The least over the groups that this process is in, each inside of the next: the limit less what is used, where
    cached files count as free, for the kernel gives them up before it kills.
    """
    found = [*_left_2(root), *_left_1(root)]
    return max(0, min(found)) if found else None


def cpus(root: Path = SYSTEM) -> int | None:
    """How many CPUs the quota pays for, rounded up; None without a quota."""
    quotas = [_words(group / "cpu.max") for group in _groups(root, "")]
    for group in _groups(root, "cpu"):
        quotas.append([*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")])
    pairs = [tuple(map(int, one)) for one in quotas if len(one) == 2 and all(word.isdigit() for word in one)]
    found = [math.ceil(quota / period) for quota, period in pairs if quota and period]  # "max" and -1 are no quota
    return min(found) if found else None


def _left_2(root: Path) -> Iterator[int]:
    for group in _groups(root, ""):
        used = _number(group / "memory.current")
        limits = [_number(group / name) for name in ("memory.max", "memory.high")]  # above high it is slowed down
        yield from _left(limits, used, _cached(group, ""))


def _left_1(root: Path) -> Iterator[int]:
    for group in _groups(root, "memory"):
        used = _number(group / "memory.usage_in_bytes")
        yield from _left([_number(group / "memory.limit_in_bytes")], used, _cached(group, "total_"))


def _left(limits: list[int | None], used: int | None, cached: int) -> Iterator[int]:
    if used is not None:
        yield from (limit - max(0, used - cached) for limit in limits if limit is not None and limit < UNLIMITED)


def _cached(group: Path, prefix: str) -> int:
    """Files in memory that can be dropped; memory shared without a file is not among them, nor is what is locked."""
    words = _words(group / "memory.stat")
    stat = dict(zip(words[::2], words[1::2], strict=False))
    return sum(int(stat.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, from the mount down; "" for version 2, which has one tree.

    A container that sees its own group as the mount is told a path outside of it, which is then not there.
    """
    mount = root / "sys/fs/cgroup" / controller
    yield mount
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(",") or ".." in path:
            continue
        group = mount
        for part in path.strip("/").split("/"):
            group = group / part
            yield group


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if len(words) == 1 and words[0].isdigit() else None


def _words(file: Path) -> list[str]:
    return _text(file).split()


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
