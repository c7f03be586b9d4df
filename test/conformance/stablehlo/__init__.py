"""Cases generated with JAX over its lax operations; importing this fills the table `CASES`."""

from . import elementwise, movement, programs, reductions
from .case import CASES, TOLERANCE, Case

__all__ = ["CASES", "TOLERANCE", "Case", "elementwise", "movement", "programs", "reductions"]
