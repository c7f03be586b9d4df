"""A StableHLO program while it is reduced: parsed, copied, changed, and written as text."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepwell import dtypes
from stepwell.dense import is_complex
from stepwell.errors import LoweringError, ModelError
from stepwell.frontends import stablehlo
from stepwell.mlir import ir, nested_operations, new_context, run_upstream
from stepwell.pipeline import main_function
from stepwell.weights import WeightTable, enter_resources

CONSTANT = "stablehlo.constant"
_RESOURCES = b"dialect_resources"

Size = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A module and the data of its resources, which the bindings do not give back."""

    context: ir.Context
    module: ir.Module
    weights: WeightTable

    @staticmethod
    def parse(data: bytes, source: str) -> Program:
        """The program as it is written. Raises ModelError when it is no StableHLO."""
        context = new_context()
        weights = WeightTable()
        with context, ir.Location.unknown():
            try:
                module = stablehlo.parse(data, context)
            except (ir.MLIRError, ValueError) as error:
                raise ModelError(
                    f"{source} is not StableHLO: {stablehlo.first_line(error)}"
                ) from None
            stablehlo.rename_main(module, source)
            if _RESOURCES in data:
                enter_resources(module, data, weights)
        return Program(context, module, weights)

    @property
    def main(self) -> ir.Operation:
        """The function that is compiled."""
        return main_function(self.module)

    @property
    def block(self) -> ir.Block:
        """Its body."""
        return self.main.regions[0].blocks[0]

    def body(self) -> list[ir.Operation]:
        """What `main` does, without its `return`."""
        return [child.operation for child in self.block.operations][:-1]

    def results(self) -> list[ir.Value]:
        """What `main` returns."""
        *_, end = self.block.operations
        return list(end.operation.operands)

    def copy(self) -> Program:
        """One that can be changed, in the same context."""
        with self.context, ir.Location.unknown():
            module = ir.Module.create()
            for child in self.module.body.operations:
                module.body.append(child.operation.clone())
        return Program(self.context, module, self.weights)

    def tidy(self) -> bool:
        """Erase what is not used any more; False where the program does not verify."""
        try:
            for function in self.module.body.operations:
                _erase_unused(function.operation)
            if len(self.module.body.operations) > 1:
                run_upstream(self.module.operation, "symbol-dce")
            return self.module.operation.verify()
        except ir.MLIRError:
            return False

    def text(self) -> str:
        """As MLIR writes it, data included."""
        return self.module.operation.get_asm().rstrip() + "\n"

    def operations(self) -> list[ir.Operation]:
        """Those of all functions, nested ones included, that compute or hold something."""
        found = nested_operations(self.module.operation)
        return [op for op in found if op.results or op.name.startswith("stablehlo.custom_call")]

    @functools.cached_property
    def size(self) -> Size:
        """What a reduction makes smaller, the most important first."""
        operations = self.operations()
        constants = [op for op in operations if op.name == CONSTANT]
        data = sum(not is_splat(op) for op in constants)
        computing = len(operations) - len(constants)
        results = [result for op in operations for result in op.results]
        numbers = sum(map(_numbers, [*results, *self.block.arguments]))
        signature = len(self.results()), len(self.block.arguments)
        return computing, data, len(constants), *signature, numbers


def is_splat(constant: ir.Operation) -> bool:
    """Whether all elements of a constant are the same, or it is one that cannot be read."""
    if is_complex(constant):
        return True
    value = constant.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


def element(kind: ir.Type) -> np.dtype | None:
    """The numpy dtype of a tensor of static shape that constants can be made of; None for others,
    complex numbers and tokens among them."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    try:
        dtype = dtypes.to_numpy(kind.element_type)
    except LoweringError:
        return None
    return None if dtype.kind == "c" else dtype


def has_uses(value: ir.Value) -> bool:
    """Whether anything uses `value`."""
    return next(iter(value.uses), None) is not None


def some_element(array: np.ndarray) -> np.ndarray:
    """The first that is not zero, if there is one: it is as valid as an index as it was before."""
    flat = array.reshape(-1)
    nonzero = np.flatnonzero(flat != 0)[:1]
    return flat[nonzero if nonzero.size else slice(0, 1)].reshape(())


def _numbers(value: ir.Value) -> int:
    """How many a value has, as far as that is known."""
    kind = value.type
    known = isinstance(kind, ir.RankedTensorType) and kind.has_static_shape
    return math.prod(kind.shape) if known else 1


def _erase_unused(parent: ir.Operation) -> None:
    for block in _blocks(parent):
        for child in reversed(list(block.operations)):
            op = child.operation
            used = any(has_uses(result) for result in op.results)
            if op.results and not used and not _has_effect(op):
                op.erase()
            else:
                _erase_unused(op)


def _blocks(op: ir.Operation) -> Iterator[ir.Block]:
    for region in op.regions:
        yield from region.blocks


def _has_effect(op: ir.Operation) -> bool:
    name = "has_side_effect"
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value
