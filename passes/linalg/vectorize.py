"""`vectorize`: structured operations as loops over vectors of one register's width.

    %r = linalg.generic {exp} ins(%x : tensor<4x64xf32>) outs(%y)

with `vectorize{vector-size=16}` becomes

    scf.for %i = %c0 to %c4 step %c1 ... { scf.for %j = %c0 to %c64 step %c16 ... {
      %v = vector.transfer_read %x[%i, %j] : tensor<4x64xf32>, vector<16xf32>
      %w = math.exp %v : vector<16xf32>
      vector.transfer_write %w, %y[%i, %j] : vector<16xf32>, tensor<4x64xf32> } }

The vectors lie along the loop that most operands have as their innermost dimension; where the size
does not divide it, the last vector is masked. Sums along a reduced loop are reassociated within
each vector. `convert-vector-to-llvm` takes what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.mlir import ir, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._transform import (
    apply_script,
    handles,
    innermost_loop,
    linalg_operations,
    loop_count,
    sizes_text,
)

_FOLD = (
    "vector.lower_masked_transfers",
    "vector.transfer_permutation_patterns",
    "vector.cast_away_vector_leading_one_dim",
    "vector.sink_ops",
    "tensor.fold_tensor_subset_ops_into_vector_transfers",
    "canonicalization",
)
_REDUCE = (
    "vector.reorder_multi_reduction_dims lowering_strategy = {0}",
    "vector.multi_reduction_flattening lowering_strategy = {0}",
    "vector.multi_reduction_unrolling lowering_strategy = {0}",
    "canonicalization",
)


@dataclass(frozen=True)
class Vectorize(Pass):
    """Vectorize every linalg operation on tensors of numbers; others are left as they are."""

    name: ClassVar[str] = "vectorize"
    anchor: ClassVar[str] = "func.func"

    vector_size: int = 16
    """Elements of a vector."""

    def run(self, op: ir.Operation, state: State) -> None:
        if self.vector_size < 1:
            raise LoweringError("vectorize: vector-size is not positive")
        run_upstream(op, "linalg-generalize-named-ops")
        for chosen in linalg_operations(op, _is_vectorizable):
            along = innermost_loop(chosen)
            reduced = "reduction" in str(chosen.attributes["iterator_types"][along])
            sizes = [1] * loop_count(chosen)
            sizes[along] = self.vector_size
            apply_script(
                op,
                [chosen],
                f"%t, %l:{len(sizes)} = transform.structured.tile_using_for %chosen tile_sizes "
                f"{sizes_text(sizes)} : (!op) -> ({handles(1 + len(sizes))})\n"
                f"    transform.structured.vectorize %t vector_sizes {sizes_text(sizes)} : !op",
            )
            strategy = '"innerreduction"' if reduced else '"innerparallel"'
            for patterns in (_FOLD, _REDUCE):
                _apply(op, [pattern.format(strategy) for pattern in patterns])
        run_upstream(op, "canonicalize,cse")


def _is_vectorizable(op: ir.Operation) -> bool:
    if op.name != "linalg.generic" or loop_count(op) == 0:
        return False
    shaped = [o.type for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
    maps = [m.value for m in op.attributes["indexing_maps"]]
    return all(isinstance(t.element_type, (ir.FloatType, ir.IntegerType)) for t in shaped) and all(
        m.is_projected_permutation for m in maps
    )


def _apply(function: ir.Operation, patterns: list[str]) -> None:
    terminator = list(function.regions[0].blocks[0].operations)[-1].operation
    listed = "\n      ".join(f"transform.apply_patterns.{p}" for p in patterns)
    apply_script(
        function,
        [terminator],
        f"transform.apply_patterns to %root {{\n      {listed}\n    }} : !op",
    )
