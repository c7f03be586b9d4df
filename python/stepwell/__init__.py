"""Stepwell: a machine-learning compiler on MLIR.

`compile` a model (or `load` an artifact) and call what comes back. Names are imported when they
are first used, so that `import stepwell` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.compiler import compile
    from stepwell.errors import (
        ArtifactError,
        CheckError,
        CompilerCrash,
        Error,
        InputError,
        LoweringError,
        ModelError,
        UnsupportedError,
        UsageError,
    )
    from stepwell.exporting import export
    from stepwell.inspection.check import check
    from stepwell.inspection.compare import compare
    from stepwell.inspection.explain import explain
    from stepwell.inspection.profile import profile
    from stepwell.inspection.tune import tune
    from stepwell.just_in_time import jit
    from stepwell.lowering import Lowered, lower
    from stepwell.options import CompileOptions
    from stepwell.runtime.executable import Executable
    from stepwell.runtime.load import load
    from stepwell.session import Session

__version__ = "0.1.0"

_MODULES = {
    "ArtifactError": "stepwell.errors",
    "CheckError": "stepwell.errors",
    "CompileOptions": "stepwell.options",
    "CompilerCrash": "stepwell.errors",
    "Error": "stepwell.errors",
    "Executable": "stepwell.runtime.executable",
    "InputError": "stepwell.errors",
    "Lowered": "stepwell.lowering",
    "LoweringError": "stepwell.errors",
    "ModelError": "stepwell.errors",
    "Session": "stepwell.session",
    "UnsupportedError": "stepwell.errors",
    "UsageError": "stepwell.errors",
    "check": "stepwell.inspection.check",
    "compare": "stepwell.inspection.compare",
    "compile": "stepwell.compiler",
    "explain": "stepwell.inspection.explain",
    "export": "stepwell.exporting",
    "jit": "stepwell.just_in_time",
    "load": "stepwell.runtime.load",
    "lower": "stepwell.lowering",
    "profile": "stepwell.inspection.profile",
    "tune": "stepwell.inspection.tune",
}

__all__ = [
    "ArtifactError",
    "CheckError",
    "CompileOptions",
    "CompilerCrash",
    "Error",
    "Executable",
    "InputError",
    "Lowered",
    "LoweringError",
    "ModelError",
    "Session",
    "UnsupportedError",
    "UsageError",
    "check",
    "compare",
    "compile",
    "explain",
    "export",
    "jit",
    "load",
    "lower",
    "profile",
    "tune",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
