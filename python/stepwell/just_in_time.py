"""`stepwell.jit`: a JAX function, compiled when it is first called with new shapes."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast, overload

import numpy as np

from stepwell.compiler import Compiled, compile
from stepwell.errors import TAKE_CALLBACKS_OUT, ModelError, UsageError
from stepwell.options import CompileOptions
from stepwell.runtime.inputs import is_immutable

if TYPE_CHECKING:
    import jax.export
    from jax.core import ShapedArray

    from stepwell.lowering import Lowered

Function = Callable[..., object]
Numbers = int | Sequence[int]
Names = str | Iterable[str]

_FUNCTIONS = ("geqp3", "gesvd", "ormqr", "unmqr")


class Jitted(Protocol):
    """What `jit` makes of a function."""

    def __call__(self, *args: object, **kwargs: object) -> object: ...

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """The function for arguments like these, arrays or `jax.ShapeDtypeStruct`s, as
        `stepwell.lower` has it: to look at each level, to change it, to go on from there. What that
        compiles to takes flat arguments, those that the function uses."""
        ...


Decorator = Callable[[Function], Jitted]


def _without_guarantee() -> list[jax.export.DisabledSafetyCheck]:
    """Custom calls that JAX may change in later versions: what is exported here is not kept."""
    from jax.export import DisabledSafetyCheck

    targets = [f"lapack_{prefix}{name}_ffi" for prefix in "sdcz" for name in _FUNCTIONS]
    targets += ["cpu_csr_sparse_dense_ffi", "tridiagonal_solve_perturbed_ffi"]
    return [DisabledSafetyCheck.custom_call(target) for target in targets]


@overload
def jit(function: Function) -> Jitted: ...
@overload
def jit(
    *,
    static_argnums: Numbers | None = None,
    static_argnames: Names | None = None,
    donate_argnums: Numbers | None = None,
    donate_argnames: Names | None = None,
    target: str = "cpu",
    threads: int | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
) -> Decorator: ...
def jit(
    function: Function | None = None,
    *,
    static_argnums: Numbers | None = None,
    static_argnames: Names | None = None,
    donate_argnums: Numbers | None = None,
    donate_argnames: Names | None = None,
    target: str = "cpu",
    threads: int | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
) -> Jitted | Decorator:
    """Compile a JAX function on its first call for every new structure, shapes and dtypes of its
    arguments, and for new values of static ones, which must be hashable. Arguments and results are
    pytrees; results hold numpy arrays, and random keys as JAX has them.

    `static_argnums` and `static_argnames` are as for `jax.jit`. `donate_argnums` and
    `donate_argnames` are taken as permission alone: no argument is written to. Inside another
    function that is compiled, or that JAX transforms, it is a part of that one. `lower` is for a
    look at what becomes of it (`Jitted.lower`). Raises what `stepwell.compile` raises, and
    UsageError for a static argument that is not hashable.
    """
    if function is None:
        return functools.partial(  # pyright: ignore[reportReturnType]
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            target=target,
            threads=threads,
            options=options,
        )
    import jax
    from jax._src.config import trace_context
    from jax._src.core import trace_state_clean
    from jax.core import Tracer

    static, static_names = _static_parameters(function, static_argnums, static_argnames)
    traced = jax.jit(function, static_argnums=[*static], static_argnames=[*static_names])
    programs: dict[object, _Program] = {}
    by_kinds: dict[object, _Program] = {}

    def exported(args: Sequence[object], kwargs: Mapping[str, object]) -> jax.export.Exported:
        export = jax.export.export(traced, platforms=["cpu"], disabled_checks=_without_guarantee())
        return _exported(export, function, args, kwargs)

    def lower(*args: object, **kwargs: object) -> Lowered:
        from stepwell import lowering

        return lowering.lower(exported(args, kwargs), target, threads, None, options)

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        dynamic, named, fixed = list(args), kwargs, {}
        if static or static_names:
            count = len(args)
            fixed = {i: v for i, v in enumerate(args) if i in static or i - count in static}
            fixed |= {name: value for name, value in kwargs.items() if name in static_names}
            dynamic = [value for i, value in enumerate(args) if i not in fixed]
            named = {name: value for name, value in kwargs.items() if name not in fixed}
        leaves, structure = jax.tree_util.tree_flatten((dynamic, named))
        rest = structure, _hashable(fixed), trace_context()
        kinds = tuple(map(_kind, leaves))
        program = by_kinds.get((kinds, rest))
        if program is None:
            if any(isinstance(leaf, Tracer) for leaf in leaves):
                return traced(*args, **kwargs)
            key = tuple(map(jax.api_util.shaped_abstractify, leaves)), rest
            program = programs.get(key)
            if program is None:
                if not trace_state_clean():  # the function may have tracers of its surroundings
                    return traced(*args, **kwargs)
                model = exported(args, kwargs)
                program = _Program(compile(model, target, threads, None, options), model)
                programs[key] = program
            if None not in kinds:
                by_kinds[kinds, rest] = program
        return program(leaves)

    call.lower = lower  # pyright: ignore[reportAttributeAccessIssue]
    return cast("Jitted", call)


class _Program:
    """A compiled function of leaves, of which it takes some."""

    def __init__(self, executable: Compiled, exported: jax.export.Exported) -> None:
        self._executable, self._exported = executable, exported
        dtypes = [aval.dtype for aval in exported.in_avals]
        self._taken = [
            (index, dtypes[index], _is_key(dtypes[index])) for index in exported.module_kept_var_idx
        ]
        self._returns_keys = any(_is_key(aval.dtype) for aval in exported.out_avals)

    def __call__(self, leaves: Sequence[object]) -> object:
        import jax

        arrays = [
            jax.random.key_data(leaves[index]) if is_key else _as_array(leaves[index], dtype)  # pyright: ignore[reportArgumentType]
            for index, dtype, is_key in self._taken
        ]
        results: Iterable[object] = self._executable(*arrays)
        if self._returns_keys:
            results = map(_as_result, results, self._exported.out_avals)
        return jax.tree_util.tree_unflatten(self._exported.out_tree, results)


def _kind(leaf: object) -> object:
    """What says, quickly, which program takes `leaf`; None where only JAX does."""
    if type(leaf) is np.ndarray:
        return leaf.shape, leaf.dtype
    if is_immutable(leaf):
        return leaf.shape, leaf.dtype, leaf.weak_type
    kind = type(leaf)
    return kind if kind in (bool, int, float, complex) else None


def _exported(
    export: Callable[..., jax.export.Exported],
    function: Function,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> jax.export.Exported:
    try:
        return export(*args, **kwargs)
    except (NotImplementedError, ValueError) as error:
        name = getattr(function, "__name__", str(function))
        if isinstance(error, ValueError) and "compatibility-guarantees" in str(error):
            targets = sorted(set(re.findall(r"custom_call @([^\s(]+)", str(error))))
            raise ModelError(
                f"the function {name} calls {', '.join(targets)} by way of jax.ffi, which compiled "
                "code does not; known are functions of LAPACK and products of sparse rows"
            ) from error
        if "host_callbacks" not in str(error):
            raise
        raise ModelError(
            f"the function {name} calls back into Python, which compiled code does not; "
            f"{TAKE_CALLBACKS_OUT}"
        ) from error


def _static_parameters(
    function: Function, argnums: Numbers | None, argnames: Names | None
) -> tuple[set[int], set[str]]:
    """Positions and names; as jax.jit has it, each stands for the other when it is not given.
    Negative positions count from the end of the arguments where a call may have any number."""
    positions = {argnums} if isinstance(argnums, int) else set(argnums or ())
    names = {argnames} if isinstance(argnames, str) else set(argnames or ())
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    by_either = {i: p.name for i, p in enumerate(parameters) if p.kind is p.POSITIONAL_OR_KEYWORD}
    if argnums is None:
        positions = {i for i, name in by_either.items() if name in names}
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if count and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        positions = {i % count if i < 0 else i for i in positions}
    if argnames is None:
        names = {name for i, name in by_either.items() if i in positions}
    return positions, names


def _hashable(fixed: Mapping[int | str, object]) -> tuple[object, ...]:
    """The arguments as a key; numbers of other types are others, as in jax.jit, though equal."""
    for place, value in fixed.items():
        try:
            hash(value)
        except TypeError:
            raise UsageError(
                f"the static argument {place} is a {type(value).__name__}, which is not hashable"
            ) from None
    return tuple((place, type(value), value) for place, value in fixed.items())


def _as_array(leaf: object, dtype: np.dtype) -> object:
    """`leaf` itself where it is an array of `dtype`."""
    return leaf if getattr(leaf, "dtype", None) == dtype else np.asarray(leaf, dtype)


def _as_result(array: np.ndarray, aval: ShapedArray) -> object:
    if not _is_key(aval.dtype):
        return array
    import jax

    kind = aval.dtype._impl.name  # pyright: ignore[reportAttributeAccessIssue]
    return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kind)


def _is_key(dtype: object) -> bool:
    import jax

    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)  # pyright: ignore[reportArgumentType]
