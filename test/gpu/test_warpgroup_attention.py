"""Attention by the warpgroups of sm_90a, on the emulator against float64: queries, keys and
features that no tile divides, masks, layouts; more blocks of queries than multiprocessors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from models import ON_GPU, Compiled, compile_for_gpu, load_on_emulator, needs_ptxas
from programs import assert_close, normal
from test_attention import (
    BF16,
    F16,
    TOLERANCES,
    attention,
    grouped,
    guarded,
    hidden,
    lower_triangle,
    operands,
    sliding,
    softmax,
    transposed,
    turned,
)
from test_lint import SM_90, assembled

import stepwell
from stepwell.inspection.gpu_lint import lint
from stepwell.kernels.gpu import attention_wgmma_tile
from stepwell.kernels.gpu.attention_wgmma_tile import WarpgroupTile


def merged_heads(q, k, v):
    """Of [B, N, H * 64], as layers give them: keys are transposed before the product."""
    split = [x.reshape(*x.shape[:2], -1, 64).swapaxes(1, 2) for x in (q, k, v)]
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jax.lax.dot_general(split[0], split[1].swapaxes(2, 3), (((3,), (2,)), ((0, 1),) * 2),
                                 preferred_element_type=wide)  # fmt: skip
    weights = softmax(scores * 0.125).astype(q.dtype)
    out = jax.numpy.einsum("bhmn,bhnd->bhmd", weights, split[2], preferred_element_type=wide)
    return out.astype(q.dtype).swapaxes(1, 2).reshape(q.shape)


def added(q, k, v):
    """Causal, as numbers that are added to scores."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jax.numpy.einsum("hmd,hnd->hmn", q, k, preferred_element_type=wide)
    seen = jax.numpy.tril(jax.numpy.ones(scores.shape[-2:], bool))
    weights = softmax(scores / 8 + jax.numpy.where(seen, 0.0, -jax.numpy.inf)).astype(q.dtype)
    return jax.numpy.einsum("hmn,hnd->hmd", weights, v, preferred_element_type=wide).astype(q.dtype)


def growing(q, k, v):
    """Scores that grow from tile to tile, by little or by much."""
    steps = jax.numpy.asarray([0, 1, 5, 6, 12, 12, 30, 90, 91], q.dtype)
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jax.numpy.einsum("hmd,hnd->hmn", q, k, preferred_element_type=wide) / 8
    scores += steps[jax.numpy.arange(k.shape[1]) // 64]
    weights = softmax(scores).astype(q.dtype)
    return jax.numpy.einsum("hmn,hnd->hmd", weights, v, preferred_element_type=wide).astype(q.dtype)


HEADS = tuple(normal(2, 330, 64, seed=i) for i in range(3))
CASES = {
    # Five blocks of queries on four multiprocessors; rings of four stages that go round.
    "tiles": (attention, operands(640, 256, 64, 64, heads=1), WarpgroupTile(64, 1, 1)),
    "odd": (attention, operands(130, 203, 72, 40), WarpgroupTile(64, 2, 1)),
    "wide": (attention, operands(129, 400, 128, 128, heads=1), WarpgroupTile(128, 2, 2)),
    "one tile": (attention, operands(70, 50, 64, 32), WarpgroupTile(64, 1, 1)),
    "three": (attention, operands(330, 300, 64, 64, heads=1), WarpgroupTile(64, 1, 1, 3)),
    "causal": (lower_triangle, HEADS, WarpgroupTile(128, 1, 1)),
    # 21 blocks of queries on four multiprocessors, whose rounds turn.
    "causal rounds": (
        lower_triangle,
        tuple(normal(7, 257, 32, seed=i) for i in range(3)),
        WarpgroupTile(64, 1, 1),
    ),
    "added mask": (added, HEADS, WarpgroupTile(64, 1, 1)),
    "large scores": (
        growing,
        (normal(1, 130, 64), *(normal(1, 520, 64, seed=i) for i in (1, 2))),
        WarpgroupTile(64, 1, 1),
    ),
    "causal groups": (
        lower_triangle,
        (normal(1, 3, 90, 64), *(normal(1, 150, 64, seed=i) for i in (1, 2))),
        WarpgroupTile(64, 1, 1),
    ),
    "merged heads": (
        merged_heads,
        tuple(normal(1, 140, 128, seed=i) for i in range(3)),
        WarpgroupTile(64, 1, 1),
    ),
    "grouped": (
        grouped,
        (normal(1, 2, 3, 50, 64), *operands(1, 100, 64, 64)[1:]),
        WarpgroupTile(64, 1, 1),
    ),
    "hidden": (guarded, (*operands(140, 131, 64, 64), hidden(140, 131)), WarpgroupTile(64, 1, 1)),
}


def compiled(case: str, dtype: np.dtype) -> tuple[Compiled, list[np.ndarray]]:
    function, arrays, _ = CASES[case]
    inputs = [array.astype(dtype) for array in arrays[:3]] + [*arrays[3:]]
    exported = jax.export.export(jax.jit(function))(*inputs).mlir_module()
    made = compile_for_gpu(str(exported), "cuda:sm_90a")
    texts = list(made.kernels.values())
    # Where nothing follows that reads the heads, another kernel puts them side by side.
    assert len(texts) == (2 if case == "merged heads" else 1)
    assert any("wgmma.mma_async" in text for text in texts)
    assert made.artifact.manifest.cuda.findings == ()
    return made, inputs


def expected_of(case: str, inputs: list[np.ndarray]) -> np.ndarray:
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        return np.asarray(CASES[case][0](*(x.astype(np.float64) for x in inputs)))


@pytest.mark.parametrize("case", CASES)
def test_attention(case: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_wgmma_tile, "choose", lambda *_: CASES[case][2])
    dtype, kind = (BF16, "bf16") if case == "tiles" else (F16, "f16")
    made, inputs = compiled(case, dtype)
    executable = load_on_emulator(made, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        assert_close(executable(*inputs)[0], expected_of(case, inputs), TOLERANCES[kind])


def test_what_is_left_to_warps() -> None:
    """Few queries, windows, wide features, keys that lie along the keys: `mma.sync`."""

    def assembly(function: Callable[..., jax.Array], *arrays: np.ndarray) -> str:
        inputs = [array.astype(F16) for array in arrays]
        exported = jax.export.export(jax.jit(function))(*inputs).mlir_module()
        return "".join(compile_for_gpu(str(exported), "cuda:sm_90a").kernels.values())

    sizes = operands(512, 512, 64, 64, heads=40)
    assert "wgmma" in assembly(attention, *sizes)
    few = assembly(attention, *(x[:, :4] for x in sizes))
    found = [
        few,
        assembly(sliding, *(x[0] for x in sizes)),
        assembly(attention, *operands(512, 512, 136, 64, heads=40)),
        assembly(transposed, *turned(*sizes)),
    ]
    assert all("mma.m16n8k16" in text and "wgmma" not in text for text in found)


@pytest.fixture(scope="module")
def walked() -> tuple[Compiled, list[np.ndarray], np.ndarray]:
    """One block of queries, keys that go round the ring, and what comes out."""
    arrays = [x.astype(F16) for x in operands(80, 330, 64, 64, heads=1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_wgmma_tile, "choose", lambda *_: WarpgroupTile(64, 1, 1))
        exported = jax.export.export(jax.jit(attention))(*arrays).mlir_module()
        made = compile_for_gpu(str(exported), "cuda:sm_90a")
    with jax.enable_x64(True):
        return made, arrays, np.asarray(attention(*(x.astype(np.float64) for x in arrays)))


ARRIVAL = r"= .*call i64 @llvm\.nvvm\.mbarrier\.arrive\.shared\(.*"
FAULTS = {
    "no wait for scores": (r"wgmma\.wait_group\.sync\.aligned 1;", ""),
    "no wait for outputs": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "more bytes": (r"(expect\.tx[\w.]*\(.*, i32) 8192\)", r"\1 8208)"),
    "fewer arrivals": (r"(mbarrier\.init\.shared\(.*, i32) 8\)", r"\1 4)"),
    "more arrivals": (r"(mbarrier\.init\.shared\(.*, i32) 8\)", r"\1 9)"),
    "no wait for copies": (r"= (?:tail )?call i32 asm sideeffect \"[^\"]*try_wait[^\n]*",
                           "= add i32 1, 0"),
    "kept turn": (r"\n.*call void @llvm\.nvvm\.barrier\.cta\.arrive\.aligned.*", ""),
    "kept stage": (ARRIVAL, "= add i64 0, 0"),
    "other rows": (r"(i32 %\d+), (i32 %\d+), (i32 %\d+, i32 %\d+, i64 %\d+\))", r"\2, \1, \3"),
    "values not transposed": (r"(\}, \$\d+, 1, 1, 1), 1;", r"\1, 0;"),
    "sums of before": (r"(\$\d+, \$\d+), 0, (1, 1, 0, 0;)", r"\1, 1, \2"),
    "maxima of half a row": (r"shfl\.sync\.bfly\.f32\(i32 -1, float (.*), i32 2,",
                             r"shfl.sync.bfly.f32(i32 -1, float \1, i32 0,"),
}  # fmt: skip


@pytest.mark.skipif(ON_GPU, reason="faults are planted in what the emulator runs")
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_planted_fault(
    fault: str | None,
    walked: tuple[Compiled, list[np.ndarray], np.ndarray],
    emulator: Emulator,
) -> None:
    """What the tests above would see if it were wrong."""
    made, inputs, expected = walked
    ((symbol, text),) = made.kernels.items()
    changed = text if fault is None else re.sub(*FAULTS[fault], text)
    assert (changed == text) == (fault is None)
    executable = load_on_emulator(dataclasses.replace(made, kernels={symbol: changed}), emulator)
    seen = []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        try:
            seen.append(executable(*inputs)[0].astype(np.float64))
        except stepwell.Error:
            assert fault is not None
            return
    tolerance = TOLERANCES["f16"]
    right = all(np.allclose(got, expected, rtol=tolerance, atol=tolerance) for got in seen)
    assert right == (fault is None)


@pytest.mark.skipif(needs_ptxas(), reason="there is no ptxas here (pip install stepwell[cuda])")
@pytest.mark.parametrize("queries", [512, 333])
def test_instructions(queries: int) -> None:
    """Bulk copies, products that nothing spills or puts in order, and exponentials between those
    that were asked for and the wait for them."""

    def several(*arrays: jax.Array) -> list[jax.Array]:
        found = [attention(*arrays[i : i + 3]) for i in (0, 3)]
        return [*found, attention(*arrays[6:10]), lower_triangle(*(x[0] for x in arrays[10:]))]

    arrays = []
    for dtype, d in ((F16, 64), (BF16, 128), (F16, 128), (F16, 64)):
        if len(arrays) == 9:
            arrays.append(np.zeros((queries, queries), np.float32))
        arrays += [np.zeros((1, 48, queries, d), dtype)] * 3
    module = str(jax.export.export(jax.jit(several))(*arrays).mlir_module())
    lowered = stepwell.lower(module, target=SM_90.name, options={"use_cache": False}).step("affine")
    expected = {"wgmma": {"HGMMA": 24, "UTMALDG": 3, "USETMAXREG": 2, "UTMASTG": 1}}
    kernels = assembled(lowered, SM_90, expected)
    assert len(kernels) == 4
    for kernel in kernels:
        assert kernel.expected
        assert lint(kernel, SM_90) == []
        assert kernel.sass.count("WARPGROUP.ARRIVE") == 3
        assert kernel.sass.count("BAR.ARV") == 2
        _, loop, _ = re.split(r"(?<=WARPGROUP\.DEPBAR\.LE gsb0, 0x1)(.*?)WARPGROUP\.DEPBAR",
                              kernel.sass, maxsplit=1, flags=re.DOTALL)  # fmt: skip
        # All 64 of a thread, but for one or two that ptxas moves.
        assert loop.count("MUFU.EX2") >= 62
    # Causal scores read no mask, bf16 is rounded two numbers at a time, and scales cost nothing.
    *_, causal = kernels
    assert "LDG.E" not in causal.sass
    kinds = [re.findall(r"F2FP\.(B?F16)", kernel.sass) for kernel in kernels]
    assert [set(found) for found in kinds] == [{"F16"}, {"BF16"}, {"F16"}, {"F16"}]
