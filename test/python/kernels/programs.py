"""Many small programs in few compilations: each `Case` is a function of arrays with its reference.

The cases of a `Batch` share one module, hence one compilation, but no values, so that nothing is
fused across them. When the module does not compile, halves of it are tried until the guilty case
stands alone; its test then fails with the compiler's sentence, and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from expected_failures import EXPECTED_FAILURES

import stepwell
from stepwell import targets

Arrays = tuple[np.ndarray, ...]

SINGLE = 5e-6
"""Sums of some hundred products of order one in float32: about 40 units in the last place."""


def runs_here(target: str) -> bool:
    """Whether this machine has the features of a CPU target."""
    return set(targets.get(target).features) <= set(targets.host().features)


def skip_elsewhere(target: str) -> None:
    """Skip the test on a machine that does not run code for `target`."""
    if not runs_here(target):
        pytest.skip(f"this machine is no {target}")


@dataclass(frozen=True)
class Case:
    """A jax function of `arrays`, which is lowered to StableHLO and never run by jax in `dtype`.

    `reference` (default: `function` itself, evaluated by XLA on float64 copies of the arrays) gives
    what to expect. `tolerance` is relative to max(1, |expected|); integers must be equal.
    """

    name: str
    function: Callable[..., object]
    arrays: Arrays
    tolerance: float = SINGLE
    reference: Callable[..., object] | None = None


class Batch:
    """Cases that are compiled together, when the first of them is asked for."""

    def __init__(self, cases: Sequence[Case], **options: object) -> None:
        self.cases = {case.name: case for case in cases}
        assert len(self.cases) == len(cases), "case names are unique"
        self.options = options
        self._results: dict[str, Arrays | stepwell.Error] = {}

    def parametrize(self) -> pytest.MarkDecorator:
        """Parametrize a test over the case names; known failures are marked as such."""
        return pytest.mark.parametrize("name", [parameter(name) for name in self.cases])

    def check(self, name: str) -> None:
        """Assert that the compiled case gives what its reference gives."""
        if not self._results:
            known = [c for c in self.cases.values() if c.name in EXPECTED_FAILURES]
            self._run([c for c in self.cases.values() if c.name not in EXPECTED_FAILURES])
            for case in known:
                self._run([case])
        result = self._results[name]
        if isinstance(result, stepwell.Error):
            raise result
        case = self.cases[name]
        expected = expected_results(case)
        assert len(result) == len(expected)
        for got, want in zip(result, expected, strict=True):
            assert_close(got, want, case.tolerance)

    def _run(self, cases: Sequence[Case]) -> None:
        if not cases:
            return
        outputs = _run_or_error(cases, self.options)
        if not isinstance(outputs, stepwell.Error):
            self._results.update(zip((c.name for c in cases), outputs, strict=True))
        elif len(cases) == 1:
            self._results[cases[0].name] = outputs
        else:
            middle = len(cases) // 2
            self._run(cases[:middle])
            self._run(cases[middle:])


def parameter(name: str, *values: object):
    """A parameter set (`name` itself without `values`), marked when `name` is a known failure."""
    reason = EXPECTED_FAILURES.get(name)
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(*(values or (name,)), id=name, marks=marks)


def _run_or_error(
    cases: Sequence[Case], options: dict[str, object]
) -> list[Arrays] | stepwell.Error:
    try:
        return run(cases, **options)
    except stepwell.Error as error:
        return error


def run(cases: Sequence[Case], **options: object) -> list[Arrays]:
    """Compile all `cases` as one module and run it: the results of each."""
    exported = export(cases)
    exe = stepwell.compile(
        exported.mlir_module(), threads=1, options={"use_cache": False, **options}
    )
    return results_of(cases, exe)


def results_of(cases: Sequence[Case], exe: Callable[..., tuple[np.ndarray, ...]]) -> list[Arrays]:
    """Run the module that all `cases` make: the results of each."""
    outputs = list(exe(*[a for case in cases for a in case.arrays]))
    results = []
    for case in cases:
        count = len(jax.tree.leaves(jax.eval_shape(case.function, *case.arrays)))
        results.append(tuple(outputs[:count]))
        del outputs[:count]
    return results


def export(cases: Sequence[Case]) -> jax.export.Exported:
    """One module whose arguments and results are those of all `cases`, in order."""

    def program(*arrays: jax.Array) -> list[object]:
        rest, results = list(arrays), []
        for case in cases:
            count = len(case.arrays)
            results.append(case.function(*rest[:count]))
            del rest[:count]
        return results

    arrays = [a for case in cases for a in case.arrays]
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    return jax.export.export(jax.jit(program, keep_unused=True))(*specs)


def expected_results(case: Case) -> list[np.ndarray]:
    """The reference's results; floats as float64."""
    wide = [a.astype(np.float64) if a.dtype.kind in "fV" else a for a in case.arrays]
    arrays = [jax.numpy.asarray(a) for a in wide]
    return [np.asarray(x) for x in jax.tree.leaves((case.reference or case.function)(*arrays))]


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Shapes and NaNs agree, integers are equal, floats within `tolerance` * max(1, |want|)."""
    assert got.shape == want.shape
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Standard normal numbers, different for each shape."""
    generator = np.random.default_rng([seed, *shape])
    return generator.standard_normal(shape).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 9, dtype: str = "int32") -> np.ndarray:
    """Small integers, different for each shape."""
    return np.random.default_rng([1, *shape]).integers(low, high + 1, shape).astype(dtype)


def pad(x: jax.Array, config: Sequence[tuple[int, int, int]], value: float = 0) -> jax.Array:
    """`lax.pad` with (low, high, interior) for each axis."""
    return jax.lax.pad(x, jax.numpy.asarray(value, x.dtype), config)
