"""Scatters on the whole grid: against jax on the CPU, with indices that meet, repeat and fall
outside; instructions and faults."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import ml_dtypes
import models
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator
from test_lint import assembled

import stepwell
from stepwell import targets
from stepwell.inspection.gpu_lint import lint
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.targets.nvidia import NvidiaTarget

RANDOM = np.random.default_rng(11)


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Small numbers, whose sums are exact in any order."""
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def indices(count: int, size: int) -> np.ndarray:
    """Some of them repeat, some are outside."""
    return RANDOM.integers(-size - 2, size + 3, count).astype(np.int32)


def rows(name: str, **options: bool) -> Callable[..., jax.Array]:
    return lambda x, i, u: getattr(x.at[i], name)(u, mode="drop", **options)


def windows(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    """Windows that overlap in part, from starts of which some lie outside."""
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    return lax.scatter_add(x, i, u, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


def replaced_windows(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    return lax.scatter(x, i, u, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


def batched(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return jax.vmap(lambda x, i, u: x.at[i].add(u))(x, i, u)


def embedding_gradient(i: jax.Array, g: jax.Array) -> jax.Array:
    return jax.vjp(lambda t: t[i], jnp.zeros((30, 64), g.dtype))[1](g)[0]


STARTS = RANDOM.integers(-2, 8, (9, 2)).astype(np.int32)

CASES: dict[str, tuple[Callable[..., jax.Array], tuple[np.ndarray, ...]]] = {
    "embedding": (embedding_gradient, (indices(200, 30), integers(200, 64))),
    "odd-rows": (rows("add"), (integers(9, 7), indices(40, 9), integers(40, 7))),
    "points": (rows("add"), (integers(9), indices(40, 9), integers(40))),
    "histogram": (lambda i: jnp.bincount(i, length=16), (np.abs(indices(500, 14)),)),
    "half": (rows("add"), tuple(
        a.astype(d) for a, d in zip((integers(9, 24), indices(40, 9), integers(40, 24)),
                                    (np.float16, np.int32, np.float16), strict=True))),
    "bfloat": (rows("add"), tuple(
        a.astype(d) for a, d in zip((integers(9, 24), indices(40, 9), integers(40, 24)),
                                    (ml_dtypes.bfloat16, np.int64, ml_dtypes.bfloat16),
                                    strict=True))),
    "bytes": (rows("add"), (integers(9, 3, dtype=np.int8), indices(40, 9),
                            integers(40, 3, dtype=np.int8))),
    "maximum": (rows("max"), (integers(9, 6), indices(40, 9), integers(40, 6))),
    "minimum-half": (rows("min"), (integers(9, 6, dtype=np.float16), indices(40, 9),
                                   integers(40, 6, dtype=np.float16))),
    "maximum-int": (rows("max"), (integers(9, 6, dtype=np.int32), indices(40, 9),
                                  integers(40, 6, dtype=np.int32))),
    "maximum-unsigned": (rows("max"), (
        RANDOM.integers(0, 2**32, (9, 6)).astype(np.uint32), indices(40, 9),
        RANDOM.integers(0, 2**32, (40, 6)).astype(np.uint32))),
    "product": (rows("multiply"), (integers(9, 6), indices(30, 9),
                                   RANDOM.choice([-1.0, 2.0], (30, 6)).astype(np.float32))),
    "set-distinct": (rows("set", unique_indices=True), (
        integers(40, 12), RANDOM.permutation(44)[:20].astype(np.int32), integers(20, 12))),
    "set-few": (rows("set"), (integers(9, 12), indices(40, 9), integers(40, 12))),
    "set-many": (rows("set"), (integers(9, 12), indices(300, 9), integers(300, 12))),
    "set-one": (lambda x, i, u: x.at[i].set(u), (integers(9, 12), np.int32(-2), integers(12))),
    "set-booleans": (rows("set"), (integers(9, 3) > 0, indices(90, 9), integers(90, 3) > 0)),
    "windows": (windows, (integers(8, 10), STARTS, integers(9, 2, 3))),
    "set-windows": (replaced_windows, (integers(8, 10), STARTS, integers(9, 2, 3))),
    "set-many-windows": (replaced_windows, (
        integers(8, 10), RANDOM.integers(-2, 8, (90, 2)).astype(np.int32), integers(90, 2, 3))),
    "batch": (batched, (integers(3, 8, 4), np.abs(indices(15, 6)).reshape(3, 5),
                        integers(3, 5, 4))),
}  # fmt: skip


def exported(function: Callable[..., jax.Array], *arrays: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*arrays).mlir_module())


BY_CPU = ("windows", "set-windows", "set-many-windows")
"""Of windows that lie inside in part, StableHLO writes that part, and XLA nothing."""


@pytest.mark.parametrize("name", CASES)
def test_same_as_jax(name: str, emulator: Emulator) -> None:
    """Exactly, since sums are of small integers; threads give way before they write."""
    function, arrays = CASES[name]
    with jax.enable_x64(True):
        module = exported(function, *arrays)
        want = np.asarray(jax.jit(function)(*arrays))
    if name in BY_CPU:
        (want,) = stepwell.compile(module)(*arrays)
    compiled = compile_for_gpu(module)
    assert not compiled.remarks
    for text in compiled.kernels.values():
        emulator.add(text, gives_way=True)
    executable = CudaExecutable(compiled.artifact)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        (got,) = executable(*arrays)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_90a+ptx80"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_sums_of_architectures(target: str, dtype: type, emulator: Emulator) -> None:
    arrays = (integers(9, 24, dtype=dtype), indices(40, 9), integers(40, 24, dtype=dtype))
    compiled = compile_for_gpu(exported(rows("add"), *arrays), target)
    for text in compiled.kernels.values():
        emulator.add(text, gives_way=True)
    (got,) = CudaExecutable(compiled.artifact)(*arrays)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(rows("add"))(*arrays)))


def two_operands(body: str) -> str:
    """A scatter of 90 updates of two operands, to 8 places."""
    return f"""func.func @main(%x: tensor<8xf32>, %y: tensor<8xi32>, %i: tensor<90x1xi32>,
        %u: tensor<90xf32>, %v: tensor<90xi32>) -> (tensor<8xf32>, tensor<8xi32>) {{
      %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{{
          scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
        {body}
      }}) : (tensor<8xf32>, tensor<8xi32>, tensor<90x1xi32>, tensor<90xf32>, tensor<90xi32>)
          -> (tensor<8xf32>, tensor<8xi32>)
      return %r#0, %r#1 : tensor<8xf32>, tensor<8xi32> }}"""


@pytest.mark.parametrize("joint", [False, True])
def test_several_operands(joint: bool, emulator: Emulator) -> None:
    """Sums of one and the last of another, a kernel for each; what looks at both at once stays on
    one block."""
    x, y = integers(8), integers(8, dtype=np.int32)
    where = indices(90, 10).reshape(90, 1)
    u, v = integers(90), np.arange(90, dtype=np.int32)
    body = """%s = stablehlo.add %c, %a : tensor<f32>
        stablehlo.return %s, %d : tensor<f32>, tensor<i32>"""
    if joint:
        body = """%t = stablehlo.compare GT, %b, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %s = stablehlo.select %t, %a, %c : tensor<i1>, tensor<f32>
        stablehlo.return %s, %d : tensor<f32>, tensor<i32>"""
    want = x.copy(), y.copy()
    for place, new, other in zip(where[:, 0], u, v, strict=True):
        if 0 <= place < 8:
            kept = want[0][place] if want[1][place] > other else new
            want[0][place] = kept if joint else want[0][place] + new
            want[1][place] = other
    compiled = compile_for_gpu(two_operands(body))
    assert [bool(compiled.remarks)] == [joint]
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for got, expected in zip(executable(x, y, where, u, v), want, strict=True):
            np.testing.assert_array_equal(got, expected)


def pooled(window: tuple[int, ...], strides: tuple[int, ...], padding: object) -> Callable:
    def gradient(x: jax.Array, g: jax.Array) -> jax.Array:
        def pool(x: jax.Array) -> jax.Array:
            return lax.reduce_window(x, -np.inf, lax.max, window, strides, padding)

        return jax.vjp(pool, x)[1](g)[0]

    return gradient


POOLS = {
    "apart": (pooled((1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (2, 6, 8, 4), (2, 3, 4, 4)),
    "rest": (pooled((1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (1, 7, 5, 3), (1, 3, 2, 3)),
    "overlap": (pooled((1, 3, 3, 1), (1, 2, 2, 1), "SAME"), (2, 8, 7, 4), (2, 4, 4, 4)),
    "images-last": (pooled((1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)]),
                    (2, 3, 8, 7), (2, 3, 4, 4)),
    "gaps": (pooled((2,), (3,), "VALID"), (11,), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_pools(name: str, emulator: Emulator) -> None:
    """With elements that are equal, so that it matters which one a window selects."""
    function, shape, windows = POOLS[name]
    arrays = (integers(*shape), integers(*windows))
    compiled = compile_for_gpu(exported(function, *arrays))
    assert not compiled.remarks
    (got,) = load_on_emulator(compiled, emulator)(*arrays)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(function)(*arrays)))


ATOMIC = r"%\d+ = atomicrmw fadd (ptr addrspace\(1\) %\d+), float (%\d+) .*"
SEPARATE = (
    r"%planted.old = load float, \1\n  %planted.new = fadd float %planted.old, \2\n"
    r"  store float %planted.new, \1"
)
FAULTS = [
    ("add", ATOMIC, SEPARATE),
    ("max", r"extractvalue { i32, i1 } %\d+, 1", "icmp eq i32 0, 0"),
    ("set", r"icmp ne i32 %\d+, %\d+", "icmp eq i32 0, 0"),
]


@pytest.mark.parametrize(("name", "pattern", "planted"), FAULTS, ids=["sum", "exchange", "last"])
def test_fault(name: str, pattern: str, planted: str, emulator: Emulator) -> None:
    """A sum in three steps, an exchange that is not tried again, an update that is not the last:
    other threads come between."""
    arrays = (
        np.zeros((5, 8), np.float32),
        (np.arange(60) % 2).astype(np.int32),
        np.arange(480, dtype=np.float32).reshape(60, 8),
    )
    compiled = compile_for_gpu(exported(rows(name), *arrays), "cuda:sm_80")
    want = np.asarray(jax.jit(rows(name))(*arrays))
    for kernels in (compiled.kernels, faulty(compiled.kernels, pattern, planted)):
        emulator.reset()
        for text in kernels.values():
            emulator.add(text, gives_way=True)
        executable = CudaExecutable(compiled.artifact)
        right = [np.array_equal(executable(*arrays)[0], want)]
        emulator.configure(backwards=True)
        right.append(np.array_equal(executable(*arrays)[0], want))
        assert all(right) == (kernels is compiled.kernels)


def faulty(kernels: dict[str, str], pattern: str, planted: str) -> dict[str, str]:
    """The kernels with a fault in one of them."""
    changed = {name: re.sub(pattern, planted, text) for name, text in kernels.items()}
    assert sum(changed[name] != text for name, text in kernels.items()) == 1, kernels
    return changed


PTX = {
    np.float32: {"cuda:sm_80": "atom.global.add.f32", "cuda:sm_90a": "add.v4.f32",
                 "cuda:sm_100a": "add.v4.f32", "cuda:sm_120": "add.v4.f32"},
    np.float16: {"cuda:sm_80": "add.noftz.f16x2", "cuda:sm_90a": "add.noftz.v4.f16x2",
                 "cuda:sm_100a": "add.noftz.v4.f16x2", "cuda:sm_120": "add.noftz.v4.f16x2"},
    ml_dtypes.bfloat16: {"cuda:sm_80": "atom.relaxed.gpu.global.cas.b32",
                         "cuda:sm_90a": "add.noftz.v4.bf16x2"},
    np.int32: {"cuda:sm_80": "atom.global.add.u32"},
}  # fmt: skip


@pytest.mark.skipif(models.needs_ptxas(), reason="there is no ptxas here")
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100a", "cuda:sm_120"])
def test_instructions(target: str) -> None:
    """What ptxas makes of them has no spills; sums wait for nothing (RED), updates that replace
    are written 16 bytes at a time."""
    gpu = targets.get(target)
    assert isinstance(gpu, NvidiaTarget)
    tables = {kind: integers(50, 64, dtype=kind) for kind in PTX}
    where = np.zeros(100, np.int32)

    def all_sums(*arrays: jax.Array) -> list[jax.Array]:
        *tables, where = arrays
        made = [table.at[where].add(jnp.ones((100, 64), table.dtype)) for table in tables]
        return [*made, tables[0].at[where].set(1.0, unique_indices=True)]

    module = exported(all_sums, *tables.values(), where)
    lowered = stepwell.lower(module, target=target, options={"use_cache": False}).step("affine")
    kernels = assembled(lowered, gpu)
    for kernel in kernels:
        assert lint(kernel, gpu) == []
    for expected in (by_target[target] for by_target in PTX.values() if target in by_target):
        (made,) = [kernel for kernel in kernels if f"{expected} " in kernel.ptx]
        assert "cas" in expected or ("RED" in made.sass and "ATOM" not in made.sass)
