"""`stepwell.jit`: a JAX function, compiled when it is first called with new shapes."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, overload

import numpy as np

from stepwell.compiler import Compiled, compile
from stepwell.options import CompileOptions

if TYPE_CHECKING:
    import jax.export

Function = Callable[..., object]
Decorator = Callable[[Function], Function]


_FUNCTIONS = ("geqp3", "gesvd", "ormqr", "unmqr")


def _without_guarantee() -> list[jax.export.DisabledSafetyCheck]:
    """Custom calls that JAX may change in later versions: what is exported here is not kept."""
    from jax.export import DisabledSafetyCheck

    targets = [f"lapack_{prefix}{name}_ffi" for prefix in "sdcz" for name in _FUNCTIONS]
    targets.append("tridiagonal_solve_perturbed_ffi")
    return [DisabledSafetyCheck.custom_call(target) for target in targets]


@overload
def jit(function: Function) -> Function: ...
@overload
def jit(
    *,
    target: str = "cpu",
    threads: int | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
) -> Decorator: ...
def jit(
    function: Function | None = None,
    *,
    target: str = "cpu",
    threads: int | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
) -> Function | Decorator:
    """Compile a JAX function on its first call for every new structure, shapes and dtypes of its
    arguments. Arguments and results are pytrees; results hold numpy arrays.

    Raises what `stepwell.compile` raises.
    """
    if function is None:
        return functools.partial(jit, target=target, threads=threads, options=options)  # pyright: ignore[reportReturnType]
    import jax

    compiled: dict[object, tuple[Compiled, jax.export.Exported]] = {}

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
        kinds = tuple(jax.api_util.shaped_abstractify(leaf) for leaf in leaves)
        key = (structure, kinds)
        if key not in compiled:
            export = jax.export.export(
                jax.jit(function), platforms=["cpu"], disabled_checks=_without_guarantee()
            )
            exported = export(*args, **kwargs)
            compiled[key] = (compile(exported, target, threads, None, options), exported)
        executable, exported = compiled[key]
        arrays = (
            np.asarray(leaves[index], exported.in_avals[index].dtype)
            for index in exported.module_kept_var_idx
        )
        return jax.tree_util.tree_unflatten(exported.out_tree, executable(*arrays))

    return call
