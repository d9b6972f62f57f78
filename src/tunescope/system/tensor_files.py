"""Files of tensors that are whole or absent, as those of `files`. They need torch, which `files` does without."""

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from tunescope.system import files


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """safetensors makes its files 0600; a folder shared by a group needs what the umask says."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    os.chmod(path, 0o666 & ~files.umask())


def put(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """`path` holds the tensors, or what it held before, also after a power cut."""
    files.put_made(path, lambda beside: write(beside, tensors))
