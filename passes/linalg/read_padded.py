"""`read-padded`: an image that is stored with its padding is stored once.

    %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0]
    %0 = linalg.generic (conv 3x3) ins(%p, %w)
    %1 = linalg.generic (add) ins(%0, %x)
      ->
    %v = tensor.extract_slice %p[0, 1, 1, 0] [1, 56, 56, 64] [1, 1, 1, 1]
    %1 = linalg.generic (add) ins(%0, %v)

The kernel that makes %x writes it between the zeros that the convolution reads, and nowhere else: a
residual block of one or two convolutions moves a third or a fifth fewer bytes. It is done where all
else that reads the image comes after the convolution, element by element; what comes before belongs
to the kernel that makes the image, which has its elements in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.structured import Structured, defining_op, is_identity, shape_of
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._uses import reached

tensor = dialect("tensor")


@dataclass(frozen=True)
class ReadPadded(Pass):
    """Look at every image that is padded once."""

    name: ClassVar[str] = "read-padded"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        for pad in [inner for inner in nested_operations(op) if inner.name == "tensor.pad"]:
            image = pad.operands[0]
            readers = [use.owner.operation for use in image.uses]
            readers = [reader for reader in readers if reader != pad]
            if readers and _is_made_here(image, pad) and _come_after(readers, image, pad):
                _read_inside(pad)


def _is_made_here(image: ir.Value, pad: ir.Operation) -> bool:
    """Whether a kernel makes the image that could write it with its padding."""
    maker = defining_op(image)
    if maker is None or maker.block != pad.block or not maker.name.startswith("linalg."):
        return False
    sizes = [*pad.attributes["static_low"], *pad.attributes["static_high"]]
    return len(pad.operands) == 1 and min(sizes) >= 0


def _come_after(readers: list[ir.Operation], image: ir.Value, pad: ir.Operation) -> bool:
    """Whether all readers read the image element by element, and need what is made of `pad`."""
    for reader in readers:
        structured = Structured.of(reader)
        if structured is None or not structured.is_elementwise or reader.block != pad.block:
            return False
        reads = [m for v, m in zip(structured.inputs, structured.maps, strict=False) if v == image]
        if not reads or not all(map(is_identity, [*reads, structured.output_map])):
            return False
    following = reached(pad, lambda _: True)
    return all(reader in following for reader in readers)


def _read_inside(pad: ir.Operation) -> None:
    image, padded = pad.operands[0], pad.results[0]
    shape, low = list(shape_of(image)), list(pad.attributes["static_low"])
    with ir.InsertionPoint(pad), pad.location:
        inside = tensor.ExtractSliceOp(
            image.type, padded, [], [], [], low, shape, [1] * len(shape)
        ).operation
    inside.move_after(pad)
    image.replace_all_uses_except(inside.results[0], pad)
