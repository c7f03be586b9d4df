"""The emulator sees faults: each is planted into a kernel that is right, and has to show."""

from __future__ import annotations

import dataclasses
import re

import jax
import numpy as np
import products
import pytest
from emulator import Emulator, host_ir
from models import Compiled, compile_for_gpu

import stepwell
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.launch import instructions
from stepwell.runtime.cuda_executable import CudaExecutable

ROWS, LENGTH = 3, 8000
X = np.random.default_rng(0).integers(-8, 8, (ROWS, LENGTH)).astype(np.float32)


@pytest.fixture(scope="module")
def sums() -> Compiled:
    """Sums of rows of integers, exact in any order: shuffles, shared memory, a barrier."""
    module = jax.export.export(jax.jit(lambda x: x.sum(1)))(X).mlir_module()
    return compile_for_gpu(str(module))


def run(
    compiled: Compiled,
    emulator: Emulator,
    pattern: str,
    planted: str,
    inputs: tuple[np.ndarray, ...] = (X,),
) -> np.ndarray:
    """The result with every match of `pattern` in the kernel replaced."""
    (text,) = compiled.kernels.values()
    changed = re.sub(pattern, planted, text)
    assert pattern == "" or changed != text, text
    emulator.add(changed)
    return CudaExecutable(compiled.artifact)(*inputs)[0]


@pytest.mark.parametrize("backwards", [False, True])
def test_exact(sums: Compiled, emulator: Emulator, backwards: bool) -> None:
    emulator.configure(backwards=backwards)
    np.testing.assert_array_equal(run(sums, emulator, "", ""), X.sum(1))


BARRIER = r".*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all\(i32 0\).*\n"


def test_missing_barrier(sums: Compiled, emulator: Emulator) -> None:
    """Shared memory that was not written yet holds NaNs."""
    assert not np.array_equal(run(sums, emulator, BARRIER, ""), X.sum(1))


def test_barrier_that_some_threads_miss(sums: Compiled, emulator: Emulator) -> None:
    """Half of the threads wait at a barrier of another number."""
    number = (
        "  %planted.tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
        "  %planted.number = lshr i32 %planted.tid, 7\n"
        "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 %planted.number)\n"
    )
    with pytest.raises(stepwell.Error, match="deadlock: 256 threads of block 0 of kernel_"):
        run(sums, emulator, BARRIER, number)


CLUSTER_BARRIER = r".*call void @llvm\.nvvm\.barrier\.cluster\.wait.*\n"


COUNTED = r"%(\d+) = [^\n]*call i32 asm sideeffect \"[^\"]*mbarrier\.try_wait[^\n]*\n"
"""Whether a barrier has counted all."""


@pytest.mark.parametrize(
    ("pattern", "planted", "found"),
    [
        (CLUSTER_BARRIER, "", "at what is no barrier"),
        (COUNTED, r"%\1 = add i32 1, 0\n", "the shared memory of one that has ended"),
    ],
    ids=["before-it-began", "before-all-came"],
)
def test_cluster_that_does_not_wait(
    emulator: Emulator, pattern: str, planted: str, found: str
) -> None:
    """Blocks write their sums to one that has not made its barrier, or that ends before."""
    x = np.random.default_rng(1).integers(-8, 8, (2, 32768)).astype(np.float32)
    module = jax.export.export(jax.jit(lambda x: x.sum(1)))(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    np.testing.assert_array_equal(run(compiled, emulator, "", "", (x,)), x.sum(1))
    with pytest.raises(stepwell.Error, match=found):
        run(compiled, emulator, pattern, planted, (x,))


def test_wrong_shuffle(sums: Compiled, emulator: Emulator) -> None:
    got = run(sums, emulator, r"(shfl\.sync\.bfly\.f32\(i32 -1, float %\d+, i32) 16,", r"\1 8,")
    assert not np.array_equal(got, X.sum(1))


def test_wrong_mask(sums: Compiled, emulator: Emulator) -> None:
    with pytest.raises(stepwell.Error, match="a shuffle among some threads of a warp"):
        run(sums, emulator, r"(shfl\.sync\.bfly\.f32\(i32) -1,", r"\1 65535,")


def test_element_that_no_thread_writes(sums: Compiled, emulator: Emulator) -> None:
    """Memory that nothing wrote is NaN."""
    assert np.isnan(run(sums, emulator, r"store float %\d+, ptr %\d+, align 4\n", "\n")).all()


def test_unknown_intrinsic(sums: Compiled) -> None:
    (text,) = sums.kernels.values()
    with pytest.raises(AssertionError, match="the emulator does not know"):
        host_ir(text.replace("llvm.nvvm.shfl.sync.bfly.f32", "llvm.nvvm.shfl.sync.up.f32"))


A, B = (
    np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)
    for seed, shape in enumerate([(64, 320), (320, 64)])
)
"""Operands of ten steps of k: the ring of copies goes round more than twice."""

PRODUCT = A.astype(np.float32) @ B.astype(np.float32)
FRAGMENT = r"ldmatrix\.sync\.aligned\.m8n8\.x4\.b16\.p3\(ptr addrspace\(3\)"


@pytest.fixture(scope="module")
def product() -> Compiled:
    """A product on tensor cores: asynchronous copies, matrices from shared memory."""
    function = jax.jit(lambda a, b: jax.numpy.matmul(a, b, preferred_element_type=np.float32))
    module = jax.export.export(function)(A, B).mlir_module()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma_tile, "TILES", (mma_tile.MmaTile(64, 64, 32, 32, stages=4),))
        return compile_for_gpu(str(module), "cuda:sm_80")


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (r"(cp\.async\.wait\.group\(i32) 2", r"\1 3"),
        (r".*call void @llvm\.nvvm\.cp\.async\.wait\.group\(.*\n", ""),
        (r".*call void @llvm\.nvvm\.cp\.async\.commit\.group\(.*\n", ""),
        (BARRIER, ""),
        (rf"%(\d+) = (.*{FRAGMENT}) (%\d+)\)",
         r"%row.\1 = getelementptr i8, ptr addrspace(3) \3, i64 16\n  %\1 = \2 %row.\1)"),
    ],
    ids=["late-copy", "no-wait", "no-group", "no-barrier", "wrong-row"],
)  # fmt: skip
def test_fault_of_a_product(
    product: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """Copies that come late, or before others have read: wrong one way or the other."""
    seen = []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        try:
            seen.append(run(product, emulator, pattern, planted, (A, B)))
        except stepwell.Error:
            return
    assert not all(np.array_equal(got, PRODUCT) for got in seen)


def test_exact_product(product: Compiled, emulator: Emulator) -> None:
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(run(product, emulator, "", "", (A, B)), PRODUCT)


C, D = (
    np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)
    for seed, shape in enumerate([(128, 640), (640, 320)])
)
"""Operands of five tiles, one more than multiprocessors, of ten steps of k: the ring of eight
stages goes round in a tile, and more than twice in two."""

GROUPED = C.astype(np.float32) @ D.astype(np.float32)
ARRIVAL = r"= (?:tail )?call i64 @llvm\.nvvm\.mbarrier\.arrive\.shared\([^\n]*"
FENCE = r".*call void @llvm\.nvvm\.fence\.proxy\.async\.shared_cta.*\n"
DESCRIPTOR = 1 << 62 | 1024 >> 4 << 32 | 8192 >> 4 << 16


def by_warpgroups(kind: type) -> Compiled:
    """A product of warpgroups whose outputs are of type `kind`: bulk copies, barriers that count
    bytes, products from shared memory."""

    def function(c: jax.Array, d: jax.Array) -> jax.Array:
        return jax.numpy.matmul(c, d, preferred_element_type=np.float32).astype(kind)

    module = jax.export.export(jax.jit(function))(C, D).mlir_module()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
        patch.setattr(wgmma_tile, "TILES", (wgmma_tile.WgmmaTile(128, 64, stages=8),))
        return compile_for_gpu(str(module), "cuda:sm_90a")


@pytest.fixture(scope="module")
def grouped() -> Compiled:
    """Outputs of 32 bits, which threads write to shared memory one by one."""
    return by_warpgroups(np.float32)


@pytest.fixture(scope="module")
def halves() -> Compiled:
    """Outputs of 16 bits, which warps write to shared memory as matrices."""
    return by_warpgroups(np.float16)


SHARED_A, SHARED_B = (
    np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)
    for seed, shape in enumerate([(512, 640), (640, 128)])
)
"""Operands of four tiles below one another: two clusters, each with one pair."""

CLUSTERED = SHARED_A.astype(np.float32) @ SHARED_B.astype(np.float32)


@pytest.fixture(scope="module")
def clusters() -> Compiled:
    """A product by pairs of blocks, which copy for each other."""
    function = jax.jit(lambda c, d: jax.numpy.matmul(c, d, preferred_element_type=np.float32))
    module = jax.export.export(function)(SHARED_A, SHARED_B).mlir_module()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
        patch.setattr(wgmma_tile, "TILES", (wgmma_tile.WgmmaTile(128, 128, 3, cluster=2),))
        return compile_for_gpu(str(module), "cuda:sm_90a")


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (r"(mapa[^\n]*\(ptr addrspace\(3\) [^,\n]+, i32) %\w+\)", r"\1 0)"),
        (r"(mbarrier\.init\.shared\(.*, i32) 16\)", r"\1 8)"),
        (r"(tile\.2d\([^\n]*), i16 3,", r"\1, i16 1,"),
        (r".*call void @llvm\.nvvm\.barrier\.cluster\.wait.*\n", ""),
        (r'"nvvm.cluster_dim"="2,1,1"', ""),
    ],
    ids=["own-arrival", "fewer-arrivals", "own-copy", "no-cluster-barrier", "no-cluster"],
)
def test_fault_of_a_cluster(
    clusters: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """Blocks that copy to each other too early, or not, or to one that is not there."""
    inputs, seen = (SHARED_A, SHARED_B), []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(run(clusters, emulator, "", "", inputs), CLUSTERED)
        try:
            seen.append(run(clusters, emulator, pattern, planted, inputs))
        except stepwell.Error:
            return
    assert not all(np.array_equal(got, CLUSTERED) for got in seen)


SHARED_K = 5 * 64
E, F = (
    np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)
    for seed, shape in enumerate([(300, SHARED_K), (SHARED_K, 120)])
)
"""Operands of six tiles of five steps each, which four blocks share: two of them end a tile that
another one has begun, and begin one."""

STREAMED = E.astype(np.float32) @ F.astype(np.float32)


@pytest.fixture(scope="module")
def shares() -> Compiled:
    """A product whose blocks share tiles, and hand each other partial sums."""
    function = jax.jit(lambda e, f: jax.numpy.matmul(e, f, preferred_element_type=np.float32))
    module = jax.export.export(function)(E, F).mlir_module()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
        patch.setattr(wgmma_tile, "TILES", (wgmma_tile.WgmmaTile(128, 64, 3, sharing=4),))
        return compile_for_gpu(str(module), "cuda:sm_90a")


RAISE, LOWER = (
    rf".*asm sideeffect \"st\.{kind}\.gpu\.global[^\n]*\n" for kind in ("release", "relaxed")
)
WAIT = r"= (?:tail )?call i32 asm sideeffect \"ld\.acquire[^\n]*"
GROUP_BARRIER = r"[^\n]*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.count\([^\n]*\n"


@pytest.mark.parametrize("backwards", [False, True])
def test_exact_shares(shares: Compiled, emulator: Emulator, backwards: bool) -> None:
    emulator.configure(backwards=backwards)
    np.testing.assert_array_equal(run(shares, emulator, "", "", (E, F)), STREAMED)


@pytest.mark.parametrize(
    ("pattern", "planted", "sentence"),
    [
        (RAISE, "", "deadlock: \\d+ threads of block 0 of kernel_"),
        (LOWER, "", "a flag is up after the launch"),
        (r"st\.relaxed(\.gpu\.global\.b32 \[\$0\]), 0;", r"st.release\1, 1;",
         "a flag is raised that is up"),
    ],
    ids=["no-flag", "no-reset", "raised-again"],
)  # fmt: skip
def test_fault_of_a_flag(
    shares: Compiled, emulator: Emulator, pattern: str, planted: str, sentence: str
) -> None:
    """Flags that nobody raises or lowers, whichever block runs first."""
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        with pytest.raises(stepwell.Error, match=sentence):
            run(shares, emulator, pattern, planted, (E, F))


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (WAIT, "= add i32 1, 0"),
        (rf"{GROUP_BARRIER}((?:[^\n]*\n){{1,12}}?{RAISE})", r"\1"),
        (rf"{GROUP_BARRIER}((?:[^\n]*\n){{1,4}}?[^\n]*load float, ptr)", r"\1"),
    ],
    ids=["early-sums", "no-barrier-before-flag", "no-barrier-behind-flag"],
)
def test_fault_of_partial_sums(
    shares: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """Sums that are added before they are there."""
    seen = []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        try:
            seen.append(run(shares, emulator, pattern, planted, (E, F)))
        except stepwell.Error:
            return
    assert not all(np.array_equal(got, STREAMED) for got in seen)


def test_flags_that_are_no_zeros(shares: Compiled, emulator: Emulator) -> None:
    """Nobody has cleared the flags before the first launch."""
    manifest = shares.artifact.manifest
    assert manifest.cuda is not None
    assert manifest.cuda.zeroed_bytes == 4 * 2 * 4
    program = dataclasses.replace(manifest.cuda, zeroed_bytes=0)
    artifact = dataclasses.replace(
        shares.artifact, manifest=dataclasses.replace(manifest, cuda=program)
    )
    with pytest.raises(stepwell.Error, match="a flag is up after the launch"):
        run(dataclasses.replace(shares, artifact=artifact), emulator, "", "", (E, F))


def test_more_blocks_than_multiprocessors(shares: Compiled, emulator: Emulator) -> None:
    """Blocks that wait for others have to run at the same time: no launch makes more."""
    manifest = shares.artifact.manifest
    assert manifest.cuda is not None
    code = list(manifest.cuda.code)
    ((_, at),) = instructions(manifest.cuda.code)
    code[at + 5] = 0
    program = dataclasses.replace(manifest.cuda, code=tuple(code))
    artifact = dataclasses.replace(
        shares.artifact, manifest=dataclasses.replace(manifest, cuda=program)
    )
    emulator.configure(multiprocessors=3)
    with pytest.raises(stepwell.Error, match="which may not all run at a time"):
        run(dataclasses.replace(shares, artifact=artifact), emulator, "", "", (E, F))


CONVOLUTION, (IMAGES, WINDOWS), CONVOLVED = products.convolution(
    (2, 11, 13, 64), (3, 3), 64, np.float16
)


@pytest.fixture(scope="module")
def convolution() -> Compiled:
    """A convolution by warpgroups: copies of what its window sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
        return compile_for_gpu(str(CONVOLUTION), "cuda:sm_90a")


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (r"(im2col\.4d\(.*), i16 (%\d+), i16 (%\d+),", r"\1, i16 \3, i16 \2,"),
        (r"(im2col\.4d\(.*), i16 (%\d+), i16 (%\d+),", r"\1, i16 \2, i16 0,"),
        (r"(im2col\.4d\(.*), i32 %\d+, i16", r"\1, i32 1, i16"),
        (r"(im2col\.4d\(.*), i32 %\d+, (i32 [^,]+, i32 [^,]+, i16)", r"\1, i32 11, \2"),
    ],
    ids=["turned-window", "lost-offset", "wrong-image", "wrong-pixel"],
)
def test_fault_of_a_convolution(
    convolution: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """What a window sees, taken from somewhere else."""
    inputs = (IMAGES, WINDOWS)
    np.testing.assert_array_equal(run(convolution, emulator, "", "", inputs), CONVOLVED)
    try:
        seen = run(convolution, emulator, pattern, planted, inputs)
    except stepwell.Error:
        return
    assert not np.array_equal(seen, CONVOLVED)


@pytest.mark.parametrize("backwards", [False, True])
def test_exact_product_of_warpgroups(
    grouped: Compiled, emulator: Emulator, backwards: bool
) -> None:
    emulator.configure(backwards=backwards)
    np.testing.assert_array_equal(run(grouped, emulator, "", "", (C, D)), GROUPED)


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (r"= (?:tail )?call i32 asm sideeffect \"[^\"]*try_wait[^\n]*", "= add i32 1, 0"),
        (r"(expect\.tx[\w.]*\(.*, i32) 24576\)", r"\1 24592)"),
        (r"(expect\.tx[\w.]*\(.*, i32) 24576\)", r"\1 16384)"),
        (r"(mbarrier\.init\.shared\(.*, i32) 8\)", r"\1 9)"),
        (r"(mbarrier\.init\.shared\(.*, i32) 8\)", r"\1 4)"),
        (r"(wgmma\.wait_group\.sync\.aligned\(i64) 1\)", r"\1 2)"),
        (r".*call void @llvm\.nvvm\.wgmma\.wait_group.*\n", ""),
        (rf"(wait_group\.sync\.aligned\(i64 0\)(?:.*\n)+?.*){ARRIVAL}", r"\1= add i64 0, 0"),
        (r"= .*call .*@llvm\.nvvm\.read\.ptx\.sreg\.nctaid\.x\(\).*", "= add i32 0, 5"),
        (FENCE, ""),
        (r"(bulk\.wait\.group\.read\(i32) 1\)", r"\1 2)"),
        (r".*call void @llvm\.nvvm\.cp\.async\.bulk\.wait\.group\.read\(i32 0\).*\n", ""),
        (r".*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.count\(.*\n", ""),
        (r"(xor i32 %\d+,) 32\n", r"\1 64\n"),
        (BARRIER, ""),
        (str(DESCRIPTOR), str(DESCRIPTOR + (64 << 32))),
        (r"(add [\w ]*i64 %\d+, )2\n", r"\g<1>4\n"),
        (r"(tile\.2d\(.*, i32) [^,\n]+, i16", r"\1 7, i16"),
    ],
    ids=["no-wait", "more-bytes", "fewer-bytes", "more-arrivals", "fewer-arrivals", "early-release",
         "no-group", "kept-stage", "lost-tile", "no-fence", "late-slab", "unread-slab",
         "no-group-barrier", "wrong-chunk", "no-barrier", "wrong-stride", "wrong-step",
         "wrong-place"],
)  # fmt: skip
def test_fault_of_a_product_of_warpgroups(
    grouped: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """Copies that come late or too early, barriers that count wrongly, operands somewhere else."""
    seen = []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        try:
            seen.append(run(grouped, emulator, pattern, planted, (C, D)))
        except stepwell.Error:
            return
    assert not all(np.array_equal(got, GROUPED) for got in seen)


STORED = r"call void (@llvm\.nvvm\.stmatrix[\w.]*)\.b16\.p3\(ptr addrspace\(3\) %(\d+),"


@pytest.mark.parametrize("backwards", [False, True])
def test_exact_product_of_halves(halves: Compiled, emulator: Emulator, backwards: bool) -> None:
    emulator.configure(backwards=backwards)
    np.testing.assert_array_equal(run(halves, emulator, "", "", (C, D)), GROUPED)


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (STORED, r"%row.\2 = getelementptr i8, ptr addrspace(3) %\2, i64 16\n"
                 r"  call void \1.b16.p3(ptr addrspace(3) %row.\2,"),
        (STORED, r"call void \1.trans.b16.p3(ptr addrspace(3) %\2,"),
        (FENCE, ""),
        (r".*call void @llvm\.nvvm\.cp\.async\.bulk\.wait\.group\.read.*\n", ""),
        (r".*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.count\(.*\n", ""),
        (r"(xor i32 %\d+,) 32\n", r"\1 64\n"),
    ],
    ids=["wrong-row", "transposed", "no-fence", "unread-slab", "no-group-barrier", "wrong-chunk"],
)  # fmt: skip
def test_fault_of_stored_matrices(
    halves: Compiled, emulator: Emulator, pattern: str, planted: str
) -> None:
    """Rows somewhere else, or copied before they are there, or over those that are still read."""
    seen = []
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        try:
            seen.append(run(halves, emulator, pattern, planted, (C, D)))
        except stepwell.Error:
            return
    assert not all(np.array_equal(got, GROUPED) for got in seen)
