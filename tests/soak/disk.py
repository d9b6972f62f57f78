"""A disk that fails at the n-th call which changes a folder, or loses its power there: a layer under `system/files.py`.

Power loss is by the letter of POSIX: a file has what it had when it was last synced, or nothing, and a folder the names
that it had when it was last synced.
"""

import os
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from tunescope.system import files, tensor_files

KINDS = ("open", "write", "fsync", "rename", "link", "mkdir")


class PowerLoss(BaseException):
    """The machine is gone: nothing that is done on the way out counts."""


class Disk:
    """Counts the calls below `root`, and fails the n-th. calls: of each its kind and the name of the file."""

    def __init__(self, root, fail_at=0, number=None):
        self.root, self.fail_at, self.number = str(root), fail_at, number
        self.calls, self.is_off, self.lost = [], False, None
        self.files, self.folders, self.held = {}, {}, {}  # as they were when last synced, by inode

    def step(self, kind, path):
        path = os.fspath(path)
        if self.is_off or not (path == self.root or path.startswith(self.root + os.sep)):
            return
        self.calls.append((kind, os.path.basename(path)))
        if len(self.calls) != self.fail_at:
            return
        if self.number is not None:
            raise OSError(self.number, os.strerror(self.number), path)
        self.is_off = True
        self.lost = self._left(os.stat(self.root).st_ino) if os.path.isdir(self.root) else {}
        raise PowerLoss

    def synced(self, handle):
        found = os.fstat(handle)
        self.held.setdefault(found.st_ino, os.dup(handle))  # so that its number is not given to another file
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                self.folders[found.st_ino] = {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}
        else:
            self.files[found.st_ino] = Path(path).read_bytes()

    def _left(self, inode):
        """name -> bytes of a file, or such a mapping of a folder."""
        entries = self.folders.get(inode, {})
        return {
            name: self._left(own) if is_dir else self.files.get(own, b"") for name, (own, is_dir) in entries.items()
        }

    def close(self):
        for handle in self.held.values():
            os.close(handle)


@contextmanager
def on(disk):
    """All that writes below the disk's root goes by way of it."""
    with ExitStack() as stack:
        for place, name, own in (*_of_the_system(disk), *_of_files(disk)):
            stack.enter_context(mock.patch.object(place, name, own))
        try:
            yield disk
        finally:
            disk.is_off = True
            disk.close()


def _of_the_system(disk):
    """(module, name, what is called instead) of what Python asks of the system."""
    plain = {name: getattr(os, name) for name in ("open", "fsync", "replace", "rename", "link", "mkdir")}

    def opened(path, flags, *given, **named):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            disk.step("open", path)
        return plain["open"](path, flags, *given, **named)

    def fsync(handle):
        disk.step("fsync", os.readlink(f"/proc/self/fd/{handle}"))
        plain["fsync"](handle)
        disk.synced(handle)

    def mkdir(path, *given, **named):
        if not os.path.isdir(path):
            disk.step("mkdir", path)
        return plain["mkdir"](path, *given, **named)

    def moved(kind, name):
        def move(old, new, *given, **named):
            disk.step(kind, new)
            return plain[name](old, new, *given, **named)

        return os, name, move

    moves = [moved("rename", "replace"), moved("rename", "rename"), moved("link", "link")]
    return [(os, "open", opened), (os, "fsync", fsync), (os, "mkdir", mkdir), *moves]


def _of_files(disk):
    """The same of what writes a whole file: half of its bytes are there when the second half fails."""
    copied, tensors = shutil.copyfile, tensor_files.write

    def written(path, data):
        disk.step("open", path)
        with open(path, "wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            disk.step("write", path)
            file.write(data[len(data) // 2 :])

    def copy(old, new):
        disk.step("write", new)
        return copied(old, new)

    def write_tensors(path, made):
        disk.step("write", path)
        tensors(path, made)

    return [(files, "write", written), (shutil, "copyfile", copy), (tensor_files, "write", write_tensors)]


def put_back(left, folder):
    """What a power loss left, as a folder; files are old, so that nobody waits for who may be writing them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in left.items():
        if isinstance(content, dict):
            put_back(content, folder / name)
        else:
            (folder / name).write_bytes(content)
            os.utime(folder / name, (0, 0))
