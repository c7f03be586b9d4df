"""`lower-kernels-to-llvm`: kernels in affine, vector and scf down to the LLVM dialect.

Upstream passes, in the order that keeps vectors whole. Memrefs become bare pointers that alias
nothing else, so that loads may move out of loops. What is invariant in loops, addresses too, leaves
them here, as do equal computations: LLVM takes several times as long for that. What is known not
to be negative is divided without a sign.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.mlir import ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State

_PIPELINE = (
    "func.func(convert-vector-to-scf),expand-strided-metadata,lower-affine,cse,"
    "func.func(arith-unsigned-when-equivalent),convert-vector-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},reconcile-unrealized-casts,cse,"
    "loop-invariant-code-motion,convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts,cse"
)


@dataclass(frozen=True)
class LowerKernelsToLlvm(Pass):
    """Lower the kernels of a module and leave the host; raises LoweringError that names a leftover
    operation (translating it would end the process)."""

    name: ClassVar[str] = "lower-kernels-to-llvm"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        kernels = [c.operation for c in body.operations if "kernel.kind" in c.operation.attributes]
        apart = ir.Module.create()
        for kernel in kernels:
            flatten_empty(kernel)
            mark_arguments(kernel)
            kernel.detach_from_parent()
            apart.body.append(kernel)
        run_upstream(apart.operation, _PIPELINE)
        check_lowered(apart)
        _move_bits(apart)
        for child in list(apart.body.operations):
            lowered = child.operation
            lowered.detach_from_parent()
            ir.InsertionPoint(body).insert(lowered)


def check_lowered(module: ir.Module) -> None:
    """Raise LoweringError for what LLVM does not know. The casts that stand between a leftover and
    what was lowered are not to blame."""
    left = [
        inner
        for inner in nested_operations(module.operation)
        if not inner.name.startswith(("llvm.", "nvvm.", "builtin.module"))
    ]
    if left:
        guilty = next((op for op in left if not op.name.startswith("builtin.")), left[0])
        raise LoweringError(
            f"{_kernel_of(guilty)}: {guilty.name} has no lowering to LLVM ({len(left)} in all)"
        )


_MOVING = ("llvm.store", "llvm.shufflevector", "llvm.insertelement", "llvm.extractelement")
"""Operations that do nothing to elements but move them."""


def _move_bits(module: ir.Module) -> None:
    """Store bf16, and take vectors of it apart, as integers: LLVM makes a choice between integers
    whose bits are stored as bf16 one between bf16, and that, as shuffles without AVX-512, in f32,
    which a library rounds."""
    for op in nested_operations(module.operation):
        if op.name not in _MOVING or _bits(op.operands[0].type) is None:
            continue
        with ir.InsertionPoint(op), op.location:
            operands = [_cast(value, _bits(value.type)) for value in op.operands]
            attributes = {name: op.attributes[name] for name in op.attributes}
            kinds = [result.type for result in op.results]
            moved = ir.Operation.create(
                op.name, [_bits(kind) or kind for kind in kinds], operands, attributes
            )
            results = [_cast(*pair) for pair in zip(moved.results, kinds, strict=True)]
        for result, value in zip(op.results, results, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


def _bits(kind: ir.Type) -> ir.Type | None:
    """The integers with the bits of bf16 or of a vector of it, None for other types."""
    vector = ir.VectorType(kind) if isinstance(kind, ir.VectorType) else None
    if not isinstance(vector.element_type if vector else kind, ir.BF16Type):
        return None
    short = ir.IntegerType.get_signless(16)
    return ir.VectorType.get(vector.shape, short) if vector else short


def _cast(value: ir.Value, kind: ir.Type | None) -> ir.Value:
    if kind is None:
        return value
    return ir.Operation.create("llvm.bitcast", [kind], [value]).results[0]


def _kernel_of(op: ir.Operation) -> str:
    while op.parent is not None and "sym_name" not in op.attributes:
        op = op.parent.operation
    return op.attributes["sym_name"].value if "sym_name" in op.attributes else op.name


def flatten_empty(kernel: ir.Operation) -> None:
    """Give arguments without elements a type of one dimension: upstream lowers no function that
    has one with a stride of zero, such as 2x0. Nothing reads or writes them."""
    types = list(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs)
    for number, argument in enumerate(kernel.regions[0].blocks[0].arguments):
        kind = argument.type
        if isinstance(kind, ir.MemRefType) and 0 in kind.shape and not _is_used(argument):
            types[number] = ir.MemRefType.get([0], kind.element_type)
            argument.set_type(types[number])
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def _is_used(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def mark_arguments(kernel: ir.Operation, shared: Collection[int] = ()) -> None:
    """Say that each buffer of a kernel overlaps no other, and that nobody else changes it while the
    kernel runs, but for the arguments of the numbers `shared`."""
    attributes = []
    for number, argument in enumerate(kernel.regions[0].blocks[0].arguments):
        entries: dict[str, ir.Attribute] = {}
        if isinstance(argument.type, ir.MemRefType) and number not in shared:
            entries = {"llvm.noalias": ir.UnitAttr.get()}
        attributes.append(ir.DictAttr.get(entries))
    kernel.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
