"""Attention as one kernel: odd numbers of queries and keys, masks, types, layouts; on the emulator
against float64, forwards and backwards."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import jax
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import ON_GPU, TARGET, Compiled, compile_for_gpu, load_on_emulator, needs_ptxas
from programs import assert_close, normal
from test_lint import assembled

import stepwell
from stepwell.inspection.gpu_lint import lint
from stepwell.kernels.gpu import attention_mma, attention_simt, attention_walk
from stepwell.kernels.gpu.attention import AttentionParts
from stepwell.passes.linalg import _attention
from stepwell.passes.linalg._diagonal import Band
from stepwell.targets.nvidia import TARGETS, NvidiaTarget

F16, BF16, F32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
TYPES = {
    "exact": (F32, "strict"),
    "f32": (F32, None),
    "tf32": (F32, "tf32"),
    "f16": (F16, None),
    "bf16": (BF16, None),
}
"""dtype and precision: f32 that is multiplied as f32, as three products of tf32, and as tf32."""


def options_of(precision: str | None) -> dict[str, str]:
    return {} if precision is None else {"precision": precision}


TOLERANCES = {"exact": 5e-6, "f32": 5e-6, "tf32": 3e-3, "f16": 2e-3, "bf16": 2e-2}
"""Of outputs below 1, as averages of normal numbers are. The types other than f32 round operands
and weights to 11, 11 and 8 bits."""


def softmax(x):
    shifted = jnp.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def attention(q, k, v, mask=None):
    """Of [B, H, M, D], [B, H, N, D] and [B, H, N, E]."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=wide)
    scores = scores * q.shape[-1] ** -0.5
    weights = softmax(scores if mask is None else scores + mask).astype(q.dtype)
    out = jnp.einsum("bhmn,bhne->bhme", weights, v, preferred_element_type=wide)
    return out.astype(q.dtype)


def transposed(q, k, v):
    """Keys and values lie along the keys: [B, H, D, N] and [B, H, E, N]."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhmd,bhdn->bhmn", q, k, preferred_element_type=wide)
    weights = softmax(scores * q.shape[-1] ** -0.5).astype(q.dtype)
    return jnp.einsum("bhmn,bhen->bhme", weights, v, preferred_element_type=wide).astype(q.dtype)


def grouped(q, k, v):
    """Four queries of [B, H, G, M, D] to each of the keys of [B, H, N, D]."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhgmd,bhnd->bhgmn", q, k, preferred_element_type=wide)
    weights = softmax(scores).astype(q.dtype)
    return jnp.einsum("bhgmn,bhnd->bhgmd", weights, v, preferred_element_type=wide).astype(q.dtype)


def causal(q, k, v):
    """Queries see the keys up to their own; beyond them scores are -inf."""
    m, n = q.shape[2], k.shape[2]
    seen = jnp.arange(n) <= jnp.arange(m)[:, None] + n - m
    return attention(q, k, v, jnp.where(seen, 0, -jnp.inf))


def lower_triangle(q, k, v):
    """The same of a constant mask of booleans; beyond it scores are the least number."""
    m, n = q.shape[-2], k.shape[-2]
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("b...md,bnd->b...mn", q, k, preferred_element_type=wide)
    seen = np.tril(np.ones((m, n), bool), n - m)
    weights = softmax(jnp.where(seen, scores, np.finfo(np.float32).min)).astype(q.dtype)
    out = jnp.einsum("b...mn,bnd->b...md", weights, v, preferred_element_type=wide)
    return out.astype(q.dtype)


def sliding(q, k, v, window=40):
    """Queries see their own key and those before it, `window` in all."""
    m, n = q.shape[-2], k.shape[-2]
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("b...md,bnd->b...mn", q, k, preferred_element_type=wide)
    ages = np.arange(m)[:, None] - np.arange(n)
    seen = (ages >= 0) & (ages < window)
    weights = softmax(jnp.where(seen, scores, -jnp.inf)).astype(q.dtype)
    out = jnp.einsum("b...mn,bnd->b...md", weights, v, preferred_element_type=wide)
    return out.astype(q.dtype)


def guarded(q, k, v, mask):
    """A query that may see nothing gets zeros."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=wide)
    weights = softmax(scores + mask)
    weights = jnp.where(jnp.isnan(weights), 0, weights).astype(q.dtype)
    out = jnp.einsum("bhmn,bhne->bhme", weights, v, preferred_element_type=wide)
    return out.astype(q.dtype)


def seeing(q, k, v, mask):
    """The same as PyTorch has it: zeros where a query may see nothing, but NaN stays."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=wide) + mask
    nothing = scores.max(-1, keepdims=True) == -jnp.inf
    weights = jnp.where(nothing, 0, softmax(scores)).astype(q.dtype)
    out = jnp.einsum("bhmn,bhne->bhme", weights, v, preferred_element_type=wide)
    return out.astype(q.dtype)


def operands(m: int, n: int, d: int, e: int, heads: int = 2) -> tuple[np.ndarray, ...]:
    return normal(1, heads, m, d), normal(1, heads, n, d, seed=1), normal(1, heads, n, e, seed=2)


def hidden(m: int, n: int) -> np.ndarray:
    """A mask in which a row sees nothing, and another no key of the first tiles."""
    mask = np.where(normal(m, n, seed=3) < 1, 0, -np.inf).astype(np.float32)
    mask[1], mask[2, :-1], mask[2, -1] = -np.inf, -np.inf, 0
    return mask


def unknown(mask: np.ndarray) -> np.ndarray:
    """A mask with a row of which one element is no number."""
    mask[4, 5] = np.nan
    return mask


def turned(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    return q, k.swapaxes(2, 3).copy(), v.swapaxes(2, 3).copy()


CASES: dict[str, tuple[Callable[..., jax.Array], tuple[np.ndarray, ...]]] = {
    "tiles": (attention, operands(64, 128, 64, 64)),
    "few": (attention, operands(5, 7, 16, 16)),
    "odd": (attention, operands(33, 131, 20, 24)),
    "odd-features": (attention, operands(17, 40, 13, 9)),
    "wide": (attention, operands(20, 70, 128, 136)),
    "transposed": (transposed, turned(*operands(20, 72, 32, 16))),
    "causal": (causal, operands(70, 90, 32, 32)),
    "triangle": (lower_triangle, tuple(normal(2, 150, 16, seed=i) for i in range(3))),
    "causal-groups": (
        lower_triangle,
        (normal(2, 3, 40, 16), *(normal(2, 130, 16, seed=i) for i in (1, 2))),
    ),
    "window": (sliding, tuple(normal(2, 150, 16, seed=i) for i in range(3))),
    "window-groups": (
        sliding,
        (normal(1, 3, 128, 16), *(normal(1, 150, 16, seed=i) for i in (1, 2))),
    ),
    "hidden": (attention, (*operands(18, 140, 32, 32), hidden(18, 140))),
    "hidden-odd": (attention, (*operands(18, 141, 32, 32), hidden(18, 141))),
    "guarded": (guarded, (*operands(18, 140, 32, 32), hidden(18, 140))),
    "seeing": (seeing, (*operands(18, 140, 32, 32), unknown(hidden(18, 140)))),
    "lowest": (attention, (*operands(9, 100, 16, 16), np.maximum(hidden(9, 100), -3.4e38))),
    "grouped": (grouped, (normal(1, 2, 4, 9, 16), *operands(9, 31, 16, 16)[1:])),
}


def compiled(case: str, kind: str) -> tuple[Compiled, list[np.ndarray]]:
    """A case in one of the `TYPES`, which has to be one kernel, and its arrays."""
    function, arrays = CASES[case]
    dtype, precision = TYPES[kind]
    inputs = [array.astype(dtype) for array in arrays[:3]] + [*arrays[3:]]
    exported = jax.export.export(jax.jit(function))(*inputs).mlir_module()
    made = compile_for_gpu(exported, **options_of(precision))
    assert len(made.kernels) == 1
    assert any(".mma." in text for text in made.kernels.values()) == (kind != "exact")
    return made, inputs


CHOSEN = [
    (case, kind)
    for case in CASES
    for kind in TYPES
    if kind in ("exact", "f32", "f16")
    or case in ("odd", "transposed", *(["wide"] * (kind == "tf32")))
]


@pytest.mark.parametrize(("case", "kind"), CHOSEN)
def test_attention(case: str, kind: str, emulator: Emulator) -> None:
    made, inputs = compiled(case, kind)
    executable = load_on_emulator(made, emulator)
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        expected = np.asarray(CASES[case][0](*(x.astype(np.float64) for x in inputs)))
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        assert_close(executable(*inputs)[0], expected, TOLERANCES[kind])


MMA_TILES = [(8, 64), (4, 32), (2, 16), (1, 64)]
SIMT_TILES = [(8, 32), (4, 64), (2, 32), (1, 16)]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", ["exact", "f32", "f16"])
def test_tile(kind: str, number: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and tiles of every size that is chosen for some sizes."""
    warps, keys = MMA_TILES[number]
    line = 32 * TYPES[kind][0].itemsize
    mma = attention_mma.AttentionTile(warps, keys, feature_bytes=line, value_bytes=line)
    rows, simt_keys = SIMT_TILES[number]
    simt = attention_simt.AttentionTile(rows, simt_keys, 24, 68, simt_keys + 4)
    monkeypatch.setattr(attention_mma, "choose", lambda *_: mma)
    monkeypatch.setattr(attention_simt, "choose", lambda *_: simt)
    made, inputs = compiled("odd", kind)
    executable = load_on_emulator(made, emulator)
    expected = np.asarray(attention(*(jnp.asarray(x, np.float32) for x in inputs)))
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        assert_close(executable(*inputs)[0], expected, TOLERANCES[kind])


def decoded(q, k, v, length):
    """One query that sees the first keys of many."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    scores = jnp.einsum("bhgmd,bhnd->bhgmn", q, k, preferred_element_type=wide)
    scores = jnp.where(jnp.arange(k.shape[2]) < length, scores * 0.2, -jnp.inf)
    weights = softmax(scores).astype(q.dtype)
    out = jnp.einsum("bhgmn,bhnd->bhgmd", weights, v, preferred_element_type=wide)
    return jnp.tanh(out).astype(q.dtype)


FEW = {
    "one query": (decoded, (normal(1, 2, 1, 1, 16), *operands(1, 1100, 16, 16)[1:], np.int32(333))),
    "groups": (decoded, (normal(1, 2, 3, 1, 24), *operands(1, 1029, 24, 24)[1:], np.int32(1029))),
    "nothing seen": (decoded, (normal(1, 1, 1, 3, 16), *operands(1, 640, 16, 16, 1)[1:],
                               np.int32(0))),
    "causal": (causal, operands(40, 700, 16, 20)),
    "guarded": (guarded, (*operands(18, 1030, 16, 16), hidden(18, 1030))),
    "seeing": (seeing, (*operands(18, 1030, 16, 16), unknown(hidden(18, 1030)))),
}  # fmt: skip


@pytest.mark.parametrize("case", FEW)
@pytest.mark.parametrize("kind", TYPES)
def test_keys_in_parts(case: str, kind: str, emulator: Emulator) -> None:
    """Few queries: the keys are split among blocks, and a second kernel joins what they found."""
    function, arrays = FEW[case]
    dtype, precision = TYPES[kind]
    inputs = [array.astype(dtype) for array in arrays[:3]] + [*arrays[3:]]
    module = str(jax.export.export(jax.jit(function))(*inputs).mlir_module())
    options = options_of(precision)
    lowered = stepwell.lower(module, target=TARGET, options=options).step("linalg")
    found = re.findall(r'kernel.key_parts = (\d+) : i64, kernel.kind = "attention"', str(lowered))
    assert [int(number) > 1 for number in found] == [True]
    made = compile_for_gpu(module, **options)
    assert len(made.kernels) == (2 if case in ("causal", "guarded", "seeing") else 3)
    executable = load_on_emulator(made, emulator)
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        wide = [x.astype(np.float64) for x in inputs[:3]] + inputs[3:]
        expected = np.asarray(function(*wide))
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        assert_close(executable(*inputs)[0], expected, TOLERANCES[kind])


@pytest.mark.parametrize("kind", ["exact", "f32", "f16"])
def test_planted_fault_of_parts(
    kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are joined as if all had the same maximum give something else."""
    write = attention_walk.PartOutputs.write_softmax

    def same(self, walk, row, column, found) -> None:
        write(self, walk, row, column, [self.nest.splat_like(found[0], 0.0), found[1]])

    monkeypatch.setattr(attention_walk.PartOutputs, "write_softmax", same)
    function, arrays = FEW["causal"]
    inputs = [array.astype(TYPES[kind][0]) for array in arrays]
    module = str(jax.export.export(jax.jit(function))(*inputs).mlir_module())
    made = compile_for_gpu(module, **options_of(TYPES[kind][1]))
    got = load_on_emulator(made, emulator)(*inputs)[0].astype(np.float64)
    expected = np.asarray(function(*(jnp.asarray(x, jnp.float32) for x in inputs)))
    assert not np.allclose(got, expected, rtol=TOLERANCES[kind], atol=TOLERANCES[kind])


FAULTS = {
    "no barrier": (r"\n.*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all\(i32 0\).*", ""),
    "no wait": (r"\n.*call void @llvm\.nvvm\.cp\.async\.wait\.group\(i32 0\).*", ""),
    "sums of half a row": (r"shfl\.sync\.bfly\.f32\(i32 -1, float (.*), i32 2,",
                           r"shfl.sync.bfly.f32(i32 -1, float \1, i32 0,"),
    "weights of another base": ("0x3FF7154760000000", "0x3FF0000000000000"),
}  # fmt: skip


@pytest.mark.skipif(ON_GPU, reason="faults are planted in what the emulator runs")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["exact", "f32", "f16"])
def test_planted_fault(
    fault: str, kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above would see if it were wrong."""
    tile = attention_mma.AttentionTile(warps=4, keys=32, feature_bytes=128, value_bytes=128)
    monkeypatch.setattr(attention_mma, "choose", lambda *_: tile)
    made, inputs = compiled("tiles", kind)
    ((symbol, text),) = made.kernels.items()
    changed = re.sub(*FAULTS[fault], text)
    if fault == "no wait" and kind == "exact":
        assert changed == text
        return
    assert changed != text, text
    made.kernels[symbol] = changed
    got = load_on_emulator(made, emulator)(*inputs)[0].astype(np.float64)
    with jax.enable_x64(True):
        expected = np.asarray(attention(*(x.astype(np.float64) for x in inputs)))
    assert not np.allclose(got, expected, rtol=TOLERANCES[kind], atol=TOLERANCES[kind])


def unfused(function: Callable[..., object], *arrays: np.ndarray) -> bool:
    module = jax.export.export(jax.jit(function))(*arrays).mlir_module()
    text = str(stepwell.lower(str(module), target="cuda:sm_90a").step("linalg"))
    return '"attention"' not in text


def test_what_stays_in_three_kernels() -> None:
    """Softmaxes of another form, sums in other types, features that no tile holds."""

    def unshifted(q, k, v):
        weights = jnp.exp(jnp.einsum("bhmd,bhnd->bhmn", q, k))
        return jnp.einsum("bhmn,bhne->bhme", weights / weights.sum(-1, keepdims=True), v)

    sizes = operands(16, 64, 32, 32)
    assert not unfused(attention, *sizes)
    assert unfused(unshifted, *sizes)
    assert unfused(attention, *operands(16, 64, 32, 512))
    with jax.enable_x64(True):
        assert unfused(attention, *(x.astype(np.float64) for x in sizes))


def _seen(scores):
    m, n = scores.shape[-2:]
    return jnp.arange(n) <= jnp.arange(m)[:, None]


DIAGONALS = {
    "added": (lambda s, u: s + jnp.where(_seen(s), 0, -jnp.inf), [0, 64]),
    "added least": (lambda s, u: s * 0.5 + jnp.where(_seen(s), 0, -3.4e38), [0, 64]),
    "chosen": (lambda s, u: jnp.where(_seen(s), s, -jnp.inf), [0, 64]),
    "constant": (lambda s, u: jnp.where(np.tril(np.ones((64, 96), bool), 7), s, -np.inf), [7, 64]),
    "of each head": (lambda s, u: jnp.where(np.arange(96) < np.arange(1, 129).reshape(2, 64, 1),
                                         s, -np.inf), [64, 64]),
    "and unknown": (lambda s, u: jnp.where(_seen(s) & u, s, -jnp.inf), [0, 64]),
    "and unknown least": (lambda s, u: jnp.where(_seen(s) & u, s, -3.4e38), None),
    "or unknown": (lambda s, u: jnp.where(_seen(s) | u, s, -jnp.inf), None),
    "low": (lambda s, u: s + jnp.where(_seen(s), 0, -1e9), None),
    "a row of the least": (lambda s, u: jnp.where(_seen(s) & (jnp.arange(64) != 9)[:, None],
                                               s, -3.4e38), [86, 64]),
}  # fmt: skip


def _near(scores):
    m, n = scores.shape[-2:]
    return _seen(scores) & (jnp.arange(n) > jnp.arange(m)[:, None] - 16)


WINDOWS = {
    "added": (lambda s, u: s + jnp.where(_near(s), 0, -jnp.inf), [-15, 64]),
    "chosen least": (lambda s, u: jnp.where(_near(s), s, -3.4e38), [-15, 64]),
    "and unknown": (lambda s, u: jnp.where(_near(s) & u, s, -jnp.inf), [-15, 64]),
    "and unknown least": (lambda s, u: jnp.where(_near(s) & u, s, -3.4e38), None),
    "without a diagonal": (lambda s, u: jnp.where(np.triu(np.ones((64, 96), bool)), s, -np.inf),
                           [0, 64]),
    "beyond the keys": (lambda s, u: jnp.where(np.triu(np.ones((64, 96), bool), 60), s, -np.inf),
                        [32, 64]),
    "a row without keys": (lambda s, u: jnp.where(_near(s) & (jnp.arange(64) != 9)[:, None],
                                                  s, -jnp.inf), [-15, 64]),
    "a row of the least": (lambda s, u: jnp.where(_near(s) & (jnp.arange(64) != 40)[:, None],
                                                  s, -3.4e38), [-40, 64]),
    "causal": (lambda s, u: jnp.where(_seen(s), s, -jnp.inf), None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "name"),
    [*(("diagonal", name) for name in DIAGONALS), *(("window", name) for name in WINDOWS)],
)
def test_band(attribute: str, name: str) -> None:
    """Which masks leave out keys for certain."""
    mask, expected = {"diagonal": DIAGONALS, "window": WINDOWS}[attribute][name]
    arrays = [np.zeros(shape, np.float32) for shape in ((2, 64, 32), (2, 96, 32), (2, 96, 32))]

    def function(q, k, v, unknown):
        scores = mask(jnp.einsum("hmd,hnd->hmn", q, k), unknown)
        return jnp.einsum("hmn,hnd->hmd", softmax(scores), v)

    module = jax.export.export(jax.jit(function))(*arrays, np.zeros((64, 96), bool)).mlir_module()
    text = str(stepwell.lower(str(module), target="cuda:sm_90a").step("linalg"))
    assert '"attention"' in text
    found = re.search(rf"kernel.{attribute} = array<i64: (\S+), (\S+)>", text)
    assert (None if found is None else [int(number) for number in found.groups()]) == expected


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 32 queries and keys."""

    def mma(parts: AttentionParts, _) -> attention_mma.AttentionTile:
        assert parts.kind is not None
        line = 16 * parts.kind.bytes
        return attention_mma.AttentionTile(2, 32, feature_bytes=line, value_bytes=line)

    simt = attention_simt.AttentionTile(4, 32, 20, 68, 36)
    monkeypatch.setattr(attention_mma, "choose", mma)
    monkeypatch.setattr(attention_simt, "choose", lambda *_: simt)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("kind", ["exact", "f32", "f16"])
def test_keys_before_the_window_are_not_read(kind: str, emulator: Emulator) -> None:
    """Tiles of keys that the last queries do not see hold no numbers."""
    arrays = [normal(2, 128, 16, seed=i).astype(TYPES[kind][0]) for i in range(3)]
    function = functools.partial(sliding, window=32)
    expected = np.asarray(function(*(jnp.asarray(x, jnp.float32) for x in arrays)))
    for x in arrays[1:]:
        x[:, :64] = np.nan
    module = str(jax.export.export(jax.jit(function))(*arrays).mlir_module())
    made = compile_for_gpu(module, **options_of(TYPES[kind][1]))
    found = load_on_emulator(made, emulator)(*arrays)[0].astype(np.float64)
    assert_close(found[:, 96:], expected[:, 96:], TOLERANCES[kind])
    assert np.isnan(found[:, :96]).all()


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("kind", ["exact", "f32", "f16"])
def test_keys_beyond_the_diagonal_are_not_read(
    kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of keys beyond the diagonal hold no numbers, which any product would show; a diagonal
    that begins anew every 32 queries loses keys."""
    arrays = [normal(2, 128, 16, seed=i).astype(TYPES[kind][0]) for i in range(3)]
    exported = str(jax.export.export(jax.jit(lower_triangle))(*arrays).mlir_module())
    expected = np.asarray(lower_triangle(*(jnp.asarray(x, jnp.float32) for x in arrays)))

    def outputs(*inputs: np.ndarray) -> np.ndarray:
        emulator.reset()
        made = compile_for_gpu(exported, **options_of(TYPES[kind][1]))
        return load_on_emulator(made, emulator)(*inputs)[0].astype(np.float64)

    q, *rest = arrays
    cut = [x.copy() for x in rest]
    for x in cut:
        x[:, 64:] = np.nan
    found = outputs(q, *cut)
    assert_close(found[:, :64], expected[:, :64], TOLERANCES[kind])
    assert np.isnan(found[:, 64:]).all()
    monkeypatch.setattr(_attention, "band_of", lambda *_: Band((0, 32), None))
    assert not np.allclose(outputs(*arrays), expected, atol=0.1)


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_projected_heads(width: int, target: str, emulator: Emulator) -> None:
    """Queries, keys and values that products give, heads side by side: those of the values are
    written one after another, for the groups of queries that share them."""
    length, features, heads, shared = 128, 64, 4, 2
    weights = [
        normal(features, n * width, seed=n).astype(np.float16) * 0.25
        for n in (heads, shared, shared)
    ]

    def layer(x: jax.Array) -> jax.Array:
        f32 = np.float32
        q, k, v = (
            jax.numpy.matmul(x, w, preferred_element_type=f32)
            .astype(x.dtype)
            .reshape(1, length, -1, width)
            .transpose(0, 2, 1, 3)
            for w in weights
        )
        k, v = (
            jax.numpy.broadcast_to(a[:, :, None], (1, shared, heads // shared, length, width))
            .reshape(1, heads, length, width)
            for a in (k, v)
        )  # fmt: skip
        scores = jax.numpy.einsum("bhqf,bhkf->bhqk", q, k, preferred_element_type=f32)
        shares = jax.nn.softmax(scores / width**0.5).astype(x.dtype)
        mixed = jax.numpy.einsum("bhqk,bhkf->bhqf", shares, v, preferred_element_type=f32)
        return mixed.astype(x.dtype)

    x = normal(1, length, features, seed=7).astype(np.float16)
    model = str(jax.export.export(jax.jit(layer))(x).mlir_module())
    compiled = compile_for_gpu(model, target)
    assert not compiled.remarks
    (got,) = load_on_emulator(compiled, emulator)(x)
    assert_close(got, np.asarray(layer(x)), TOLERANCES["f16"])


LINTED = {"f16": [(128, 128)], "tf32": [(64, 64)], "f32": [(32, 32)], "exact": [(128, 128)]}


@pytest.mark.skipif(needs_ptxas(), reason="there is no ptxas here (pip install stepwell[cuda])")
@pytest.mark.parametrize("kind", LINTED)
def test_instructions(kind: str) -> None:
    """Nothing is spilled, copies are of 16 bytes, products are those of tensor cores (of warps)."""
    dtype, precision = TYPES[kind]

    def several(*arrays: jax.Array) -> list[jax.Array]:
        found = [attention(*arrays[i : i + 4]) for i in range(0, len(arrays), 4)]
        q, k, v = (array[0] for array in arrays[:3])
        found += [lower_triangle(q, k, v), lower_triangle(q[:, :8], k, v)]
        return [*found, sliding(k, q, v, window=100)]

    arrays = []
    for d, e in LINTED[kind]:
        arrays += [np.zeros(x.shape, dtype) for x in operands(512, 512, d, e, heads=48)]
        arrays.append(np.zeros((512, 512), np.float32))
    module = str(jax.export.export(jax.jit(several))(*arrays).mlir_module())
    options = options_of(precision)
    lowered = stepwell.lower(module, target="cuda:sm_100a", options=options).step("affine")
    for target in TARGETS:
        assert isinstance(target, NvidiaTarget)
        if kind == "f32" and not target.splits_f32:
            continue
        kernels = assembled(lowered, target)
        kernels = [kernel for kernel in kernels if "BAR.SYNC" in kernel.sass]
        assert len(kernels) == len(LINTED[kind]) + 3
        for kernel in kernels:
            assert lint(kernel, target) == []
            assert "MUFU.EX2" in kernel.sass
            if kind == "exact":
                assert re.search(r"LDG\.E\.128.*LDS\.128.*FFMA", kernel.sass, re.DOTALL)
            else:
                assert re.search(r"LDGSTS\S*\.128.*LDSM.*HMMA", kernel.sass, re.DOTALL)
                assert kernel.sass.count("BAR.SYNC") == 2
