"""`lower-host-to-llvm`: the host program as the model's C entry point, in the LLVM dialect.

Every buffer of the host is a constant distance from an input, an output, the weights or the arena,
so the entry computes pointers and hands each kernel to the context's `parallel_for`
(runtime/stepwell_runtime.h). Kernels get a task function of the C ABI that unpacks their arguments.

    func.call @kernel_0(%x, %w, %out)
      ->  store the three pointers into %arguments
          llvm.call %parallel_for(%context, @kernel_0_task, %arguments, 48)

Loops (`scf.while`) and branches (`scf.if`) of the host carry nothing but buffers: they become
blocks of the entry, on conditions that kernels have written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.mlir import ir
from stepwell.packing import derived_to_dict
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import ARENA_BYTES
from stepwell.passes.llvm._entry_text import ENTRY, entry_text, task_text
from stepwell.passes.llvm._host_program import read_host

_KEPT = (
    "stepwell.inputs",
    "stepwell.outputs",
    ARENA_BYTES,
    "stepwell.scalars",
    "stepwell.prefixes",
    "stepwell.extents",
    "stepwell.result_extents",
)


@dataclass(frozen=True)
class LowerHostToLlvm(Pass):
    """Replace the host, the one `func.func` among lowered kernels, by `stepwell_main`, and add the
    task functions."""

    name: ClassVar[str] = "lower-host-to-llvm"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        operations = [c.operation for c in body.operations]
        hosts = [f for f in operations if f.name == "func.func"]
        if len(hosts) != 1:
            raise LoweringError(f"expected one host function, found {len(hosts)}")
        tasks = {
            f.attributes["sym_name"].value: ir.IntegerAttr(f.attributes["kernel.tasks"]).value
            for f in operations
            if "kernel.tasks" in f.attributes
        }
        program = read_host(hosts[0], tasks, state)
        state.host = program  # pyright: ignore[reportAttributeAccessIssue]
        signature = {n: hosts[0].attributes[n] for n in hosts[0].attributes if n in _KEPT}
        hosts[0].erase()
        counts = {call.kernel: len(call.operands) for call in program.calls}
        text = "\n".join([entry_text(program), *(task_text(k, n) for k, n in counts.items())])
        declared = "\n".join(
            f"llvm.func @{name}({'!llvm.ptr, ' * count}i64, i64)" for name, count in counts.items()
        )
        parsed = ir.Module.parse(f"{declared}\n{text}")
        for child in list(parsed.body.operations):
            if child.operation.name == "llvm.func" and not len(child.operation.regions[0].blocks):
                continue
            clone = child.operation.clone()
            ir.InsertionPoint(body).insert(clone)
            if clone.attributes["sym_name"].value == ENTRY:
                for name, attribute in signature.items():
                    clone.attributes[name] = attribute
                clone.attributes["stepwell.weights"] = _offsets(program.weights)
                clone.attributes["stepwell.sources"] = _offsets(program.sources)
                clone.attributes["stepwell.derived"] = ir.StringAttr.get(
                    json.dumps([derived_to_dict(weight) for weight in program.derived])
                )
                clone.attributes["stepwell.functions"] = ir.ArrayAttr.get(
                    [ir.StringAttr.get(name) for name in program.functions]
                )


def _offsets(weights: dict[str, int]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get({n: ir.IntegerAttr.get(i64, o) for n, o in weights.items()})
