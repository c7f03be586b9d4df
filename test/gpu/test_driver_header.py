"""What the runtime knows of the driver without its header, compared with the header."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from stepwell.kernels.gpu.tensor_map import TYPES

_ROOT = Path(__file__).parents[2]
_NAMES = ("f16", "bf16", "f32", "tf32", "i32", "i8")


def header_folder() -> Path | None:
    """The folder of `cuda.h` of NVIDIA's packages or of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    found = [path for place in places for path in Path(place).glob("cu*/include/cuda.h")]
    found.append(Path("/usr/local/cuda/include/cuda.h"))
    return next((path.parent for path in found if path.exists()), None)


def test_numbers_and_structures() -> None:
    folder, compiler = header_folder(), shutil.which("cc") or shutil.which("gcc")
    if folder is None or compiler is None:
        pytest.skip("there is no cuda.h here, or no C compiler")
    kinds = [f"-DTYPE_{name}={TYPES[name]}" for name in _NAMES]
    source = Path(__file__).with_name("driver_header.c")
    command = [compiler, "-std=c11", "-fsyntax-only", "-Wall", "-Werror", f"-I{_ROOT / 'runtime'}",
               f"-I{folder}", *kinds, str(source)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
