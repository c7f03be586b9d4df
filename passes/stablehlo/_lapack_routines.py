"""The functions of LAPACK that JAX calls on CPUs, each by what its custom call says.

Operands, results and configuration are those of JAX's lowering rules (jax/_src/lax/linalg.py, jax
0.10); arguments and least sizes of working memory those of the LAPACK Users' Guide, with room for
blocks of columns.
"""

from __future__ import annotations

from collections.abc import Callable

from stepwell.mlir import ir
from stepwell.passes.stablehlo import _lapack_eigenvalues as eigenvalues
from stepwell.passes.stablehlo import _lapack_solvers as solvers
from stepwell.passes.stablehlo._lapack_call import LapackCall

Routine = Callable[[LapackCall], "list[ir.Value]"]

ROUTINES: dict[str, Routine] = {
    "geev": eigenvalues.geev,
    "gees": eigenvalues.gees,
    "gehrd": eigenvalues.gehrd,
    "geqp3": solvers.geqp3,
    "geqrf": solvers.geqrf,
    "gesdd": eigenvalues.gesdd,
    "gesvd": eigenvalues.gesvd,
    "getrf": solvers.getrf,
    "gtsv": solvers.gtsv,
    "heevd": eigenvalues.syevd,
    "hetrd": eigenvalues.sytrd,
    "orgqr": solvers.orgqr,
    "ormqr": solvers.ormqr,
    "potrf": solvers.potrf,
    "syevd": eigenvalues.syevd,
    "sytrd": eigenvalues.sytrd,
    "tridiagonal_solve_perturbed": solvers.solve_perturbed,
    "trsm": solvers.trsm,
    "ungqr": solvers.orgqr,
    "unmqr": solvers.ormqr,
}
"""What replaces the results of a custom call, by the name of the function without its prefix."""
