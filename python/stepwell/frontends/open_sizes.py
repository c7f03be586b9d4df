"""What a program with open sizes says of itself: extents of dimensions, bounds of slices, numbers
that were computed from shapes. The program is that of the capacities, with

    %3 = stablehlo.add %1, %2 {stepwell.extents = ["s0, 768"]} : tensor<512x768xf32>

where only `s0` of 512 rows are in use. `open_comparison` makes it, `legalize-open-sizes` makes it
correct for each of them.
"""

from __future__ import annotations

from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.frontends import Imported
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.sizes import OpenSizes

EXTENTS = "stepwell.extents"
"""Of an operation: for each result, of the function: for each argument, the extents of its
dimensions; left out where none is open."""

RESULT_EXTENTS = "stepwell.result_extents"
"""Of the function: the extents of its results."""

SCALARS = "stepwell.scalars"
"""Of a constant whose elements are functions of the sizes: what they are, in order; one for all."""

OVER = "/"
"""Between two extents: the number is the first divided by the second."""

BOUNDS = "stepwell.bounds."
"""Before the name of an array attribute: its elements as extents."""

CAPACITIES = "stepwell.capacities"
"""Of the function: the capacities of `s0`, `s1`, ..."""

PREFIXES = "stepwell.prefixes"
"""Of the function, once legalized: the extents and capacities of the vectors of booleans it takes
last. `stepwell.scalars` has the elements of the vector of sizes in front of them."""

EXACT_INPUTS = "stepwell.exact_inputs"
"""Of the function, once it is one of buffers: the inputs, by number, of which no more is read than
is in use (`mark-exact-arguments`, on CPUs)."""

EXACT_RESULTS = "stepwell.exact_results"
"""The results, by number, of which no more is written."""


def read(main: ir.Operation, imported: Imported) -> OpenSizes | None:
    """What the host function of a program with open sizes says of them; None for other programs."""
    shapes = imported.open_shapes
    if shapes is None:
        return None
    scalars = tuple(Extent.parse(ir.StringAttr(text).value) for text in main.attributes[SCALARS])
    prefixes = tuple(
        (Extent.parse(ir.StringAttr(extent).value), ir.IntegerAttr(capacity).value)
        for extent, capacity in main.attributes[PREFIXES]
    )
    inputs, outputs = (tuple(read_extents(main, n) or ()) for n in (EXTENTS, RESULT_EXTENTS))
    names, capacities = tuple(shapes.names), tuple(shapes.capacities.values())
    exact = (
        tuple(ir.DenseI64ArrayAttr(main.attributes[n])) if n in main.attributes else ()
        for n in (EXACT_INPUTS, EXACT_RESULTS)
    )
    least = shapes.least
    return OpenSizes(names, capacities, inputs, outputs, scalars, prefixes, *exact, least=least)


def read_extents(op: ir.Operation, name: str = EXTENTS) -> list[tuple[Extent, ...]] | None:
    """What the attribute `name` of `op` says; None where it is left out. Raises LoweringError."""
    if name not in op.attributes:
        return None
    found = []
    for text in op.attributes[name]:
        parts = ir.StringAttr(text).value.split(",")
        try:
            found.append(tuple(Extent.parse(p) for p in parts if p.strip()))
        except ValueError as error:
            raise LoweringError(f"{source_name(op)}: {name}: {error}") from None
    return found
