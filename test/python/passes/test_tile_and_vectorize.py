"""Tiling, fusion and vectorisation by name, down to machine code, against numpy."""

import ctypes

import numpy as np
import pytest

from stepwell import codegen
from stepwell.mlir import ir, new_context
from stepwell.passes.base import State
from stepwell.passes.pipeline_text import parse, plan, run_steps
from stepwell.targets import host

LAYER = """
func.func @layer(%x: tensor<37x64xf32>, %w: tensor<64x100xf32>, %b: tensor<100xf32>,
                 %out: tensor<37x100xf32>) -> tensor<37x100xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<37x100xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<37x100xf32>) -> tensor<37x100xf32>
  %r = linalg.matmul ins(%x, %w : tensor<37x64xf32>, tensor<64x100xf32>)
         outs(%i : tensor<37x100xf32>) -> tensor<37x100xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
                       affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%r, %b : tensor<37x100xf32>, tensor<100xf32>) outs(%out : tensor<37x100xf32>) {
    ^bb0(%y: f32, %bias: f32, %old: f32):
      %sum = arith.addf %y, %bias : f32
      %relu = arith.maximumf %sum, %zero : f32
      linalg.yield %relu : f32
  } -> tensor<37x100xf32>
  return %s : tensor<37x100xf32>
}
"""

TO_LLVM = (
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},func.func(scf-forall-to-for),"
    "cse,canonicalize,func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=65536},"
    "convert-vector-to-scf),lower-affine,convert-scf-to-cf,"
    "expand-strided-metadata,lower-affine,convert-vector-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-arith-to-llvm,"
    "convert-cf-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts"
)


@pytest.mark.parametrize(
    "schedule",
    [
        "tile{tile-sizes=8,32,0 target-op=linalg.matmul},vectorize{vector-size=16}",
        "tile{tile-sizes=16,0,8 interchange=2,1,0 target-op=linalg.matmul},"
        "vectorize{vector-size=8}",
        "tile{tile-sizes=8,32 parallel=true target-op=linalg.matmul},vectorize{vector-size=8}",
        "fuse-epilogues,fuse-producers{tile-sizes=37,20},vectorize{vector-size=16}",
    ],
)
def test_layer_runs_tiled_and_vectorized(schedule, tmp_path):
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((37, 64), (64, 100), (100,)))
    out = np.full((37, 100), np.nan, np.float32)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(LAYER)
        steps = plan(parse(f"builtin.module({schedule},{TO_LLVM})"))
        run_steps(module, steps, State())
        code = codegen.object_code(codegen.optimized_llvm(module.operation, host()), host())
    shared = codegen.link([code], host())
    if shared is None:
        pytest.skip("there is no linker")
    library = tmp_path / "layer.so"
    library.write_bytes(shared)
    ctypes.CDLL(str(library)).layer(
        *(ctypes.c_void_p(array.ctypes.data) for array in (x, w, b, out))
    )
    # Sums of 64 products of order one in float32, in another order than numpy's.
    np.testing.assert_allclose(out, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-5)
