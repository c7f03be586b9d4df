"""Addresses of the library functions that a model calls: BLAS and LAPACK, as SciPy brings them.

SciPy is imported when a model names such a function, not before.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import ctypes
import importlib
import os
import re

from stepwell.errors import ArtifactError

_MODULES = {"blas": "scipy.linalg.cython_blas", "lapack": "scipy.linalg.cython_lapack"}
"""Modules of SciPy whose `__pyx_capi__` has capsules with Fortran functions by name."""

_INTEGER = re.compile(rb"\bint \*")
"""What the signature of a function says of its integers."""


def address(function: str, model: str | os.PathLike[str]) -> int:
    """The address of `function`, "lapack.dgetrf". Raises ArtifactError, naming the `model`, where
    SciPy is missing or has no such function of 32-bit integers."""
    library, _, name = function.partition(".")
    if library not in _MODULES:
        raise ArtifactError(f"{model} calls {function}, of a library that is not known here")
    try:
        capsules = importlib.import_module(_MODULES[library]).__pyx_capi__
    except ImportError as error:
        raise ArtifactError(
            f"{model} calls {name} of {library.upper()}, which SciPy provides: "
            f"install scipy, or stepwell[lapack] ({error})"
        ) from None
    signature = _signature(capsules[name]) if name in capsules else b""
    if _INTEGER.search(signature) is None:
        raise ArtifactError(
            f"{model} calls {name} of {library.upper()}, which the installed SciPy does not have "
            "with 32-bit integers"
        )
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsules[name], signature)


def _signature(capsule: object) -> bytes:
    """A capsule's name, which in Cython's modules is the signature of the function in it."""
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)
    return name(("PyCapsule_GetName", ctypes.pythonapi))(capsule)
