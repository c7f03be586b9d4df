"""Artifacts made by hand: C functions with the entry point's ABI, compiled with cc.

Fixtures of test/python/runtime and test/python/tools.
"""

from __future__ import annotations

import dataclasses
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stepwell import artifact, cache, compiler
from stepwell.artifact import KernelInfo, Manifest, TensorSpec

ROOT = Path(__file__).parents[3]

ADD_WEIGHT = """
#include "stepwell_runtime.h"
/* y = relu(x + weight) in parallel over rows; z = the rows' count of the arena's use */
static void rows(void *const *a, int64_t begin, int64_t end) {
  const float *x = a[0], *w = a[1];
  float *y = a[2];
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < 8; ++j) {
      const float sum = x[i * 8 + j] + w[j];
      y[i * 8 + j] = sum > 0 ? sum : 0;
    }
}
void stepwell_main(stepwell_context *context, void *const *inputs, void *const *outputs,
                   const void *weights, void *arena) {
  void **arguments = arena;
  arguments[0] = inputs[0];
  arguments[1] = (void *)weights;
  arguments[2] = outputs[0];
  if (context->trace)
    context->trace(context, 0);
  context->parallel_for(context, rows, arguments, 16);
  if (context->trace)
    context->trace(context, -1);
}
"""

COPY_WEIGHT = """
#include <string.h>
/* the second object: a table of constants, and a call of libc */
static const float table[64] = {[5] = 3.0f, [63] = 1.0f};
float copy_weight(void *to, const void *from, int index) {
  memcpy(to, from, 8 * sizeof(float) * (index / index));
  return table[index];
}
"""

COPY = """
#include "stepwell_runtime.h"
void stepwell_main(stepwell_context *context, void *const *inputs, void *const *outputs,
                   const void *weights, void *arena) {
  (void)context, (void)weights, (void)arena;
  for (int i = 0; i < BYTES; ++i)
    ((char *)outputs[0])[i] = ((const char *)inputs[0])[i];
}
"""

WEIGHT = np.linspace(-2, 1, 8, dtype=np.float32)


def manifest(**changes: object) -> Manifest:
    """The manifest of ADD_WEIGHT for this machine."""
    base = Manifest(
        inputs=(TensorSpec("x", "float32", (16, 8)),),
        outputs=(TensorSpec("y", "float32", (16, 8)),),
        entry="stepwell_main",
        arena_bytes=64,
        weights_bytes=WEIGHT.nbytes,
        target="test",
        triple=f"{platform.machine()}-unknown-linux-gnu",
        kernels=(KernelInfo("kernel_0", ("Add_1", "Relu_2"), "by hand", 256, 1056),),
    )
    return dataclasses.replace(base, **changes)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """C text into a shared object, or an object file with `shared=False`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def build(text: str, *flags: str, shared: bool = True) -> bytes:
        folder = tmp_path_factory.mktemp("code")
        (folder / "code.c").write_text(text)
        kind = ["-shared", "-fPIC"] if shared else ["-c", "-fPIC"]
        subprocess.run(
            [compiler, *kind, "-O1", f"-I{ROOT / 'runtime'}", *flags, "code.c", "-o", "code.out"],
            cwd=folder,
            check=True,
        )
        return (folder / "code.out").read_bytes()

    return build


@pytest.fixture(scope="session")
def add_weight_code(compile_c: Callable[..., bytes]) -> bytes:
    """ADD_WEIGHT as a shared object."""
    return compile_c(ADD_WEIGHT)


@pytest.fixture
def model(tmp_path: Path, add_weight_code: bytes) -> Path:
    """An artifact of ADD_WEIGHT: y = relu(x + WEIGHT), x and y float32 (16, 8)."""
    path = tmp_path / "model.stepwell"
    artifact.write(path, manifest(), add_weight_code, [(0, WEIGHT)])
    return path


@pytest.fixture
def fake_compiler(
    tmp_path: Path, add_weight_code: bytes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The compiler is fake_pipeline.py, with a cache of its own; gives the cache's folder."""
    code = tmp_path / "code.so"
    code.write_bytes(add_weight_code)
    monkeypatch.setenv("STEPWELL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("STEPWELL_TEST_CODE", str(code))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(compiler, "ENTRY", "fake_pipeline:compile_to_artifact")
    cache.root.cache_clear()
    yield tmp_path / "cache" / cache.VERSION
    cache.root.cache_clear()
