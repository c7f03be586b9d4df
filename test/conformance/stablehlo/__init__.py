"""Cases generated with JAX over its lax operations; importing this fills the table `CASES`."""

from . import (
    complex_numbers,
    elementwise,
    linear_algebra,
    movement,
    programs,
    reductions,
    special_functions,
)
from .case import CASES, TOLERANCE, Case

__all__ = [
    "CASES",
    "TOLERANCE",
    "Case",
    "complex_numbers",
    "elementwise",
    "linear_algebra",
    "movement",
    "programs",
    "reductions",
    "special_functions",
]
