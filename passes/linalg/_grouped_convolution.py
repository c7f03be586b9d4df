"""Grouped convolutions as one structured operation.

    y[n, h, w, g, o] += x[n, h * s + i * d, w * s + j * d, g, c] * f[i, j, c, g, o]

Upstream lowers convolutions without groups, and depthwise ones.
"""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.structured import defining_op, shape_of
from stepwell.mlir import dialect, ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import integer, optional_integers, padding

tensor, arith, linalg = dialect("tensor"), dialect("arith"), dialect("linalg")


def is_grouped(op: ir.Operation) -> bool:
    """Whether a convolution has groups, of several input channels each."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    inputs = hlo.shape(op.operands[1])[numbers.kernel_input_feature_dimension]
    return integer(op, "feature_group_count") > 1 and inputs > 1


def is_taken_whole(op: ir.Operation) -> bool:
    """Whether a convolution sums floats or signed integers as wide as the operands or wider."""
    *operands, total = (hlo.element_type(value) for value in (*op.operands, op.results[0]))
    if isinstance(total, ir.FloatType):
        summed = all(isinstance(k, ir.FloatType) and _widens(k, total) for k in operands)
    elif isinstance(total, ir.IntegerType) and total.is_signless and total.width > 1:
        summed = all(isinstance(k, ir.IntegerType) and k.is_signless for k in operands)
        summed = summed and all(1 < k.width <= total.width for k in operands)
    else:
        summed = False
    return summed


def _widens(kind: ir.Type, total: ir.FloatType) -> bool:
    return kind == total or ir.FloatType(kind).width < total.width


def channels_of(image: ir.Value) -> ir.Value:
    """What the image of a grouped convolution is with the channels of all groups in one dimension;
    of another convolution, `image` itself."""
    op = defining_op(image)
    if op is None or op.name != "tensor.expand_shape":
        return image
    whole = op.operands[0]
    shape = shape_of(whole)
    return whole if shape_of(image)[: len(shape) - 1] == shape[:-1] else image


def lower(op: ir.Operation) -> ir.Value | None:
    """A convolution for which both hold, in NHWC and HWIO, as `linalg.generic`."""
    if not is_grouped(op) or not is_taken_whole(op):
        return None
    lhs, rhs = op.operands
    groups = integer(op, "feature_group_count")
    batch, *spatial, outputs = hlo.shape(op.results[0])
    *window, inputs, _ = hlo.shape(rhs)
    rank = len(window)
    pads = padding(op, rank)
    zero = hlo.full(0, [], hlo.dtype(lhs))
    image = hlo.pad(lhs, zero, [0, *(p[0] for p in pads), 0], [0, *(p[1] for p in pads), 0])
    image = hlo.reshape(image, [*hlo.shape(image)[:-1], groups, inputs])
    filters = hlo.reshape(rhs, [*window, inputs, groups, outputs // groups])
    strides = optional_integers(op, "window_strides", rank, 1)
    dilations = optional_integers(op, "rhs_dilation", rank, 1)
    dims = [ir.AffineExpr.get_dim(i) for i in range(2 * rank + 4)]
    (n, *rows, g, o), (*taps, c) = dims[: rank + 3], dims[rank + 3 :]
    places = [
        row * stride + tap * dilation
        for row, stride, tap, dilation in zip(rows, strides, taps, dilations, strict=True)
    ]
    maps = [[n, *places, g, c], [*taps, c, g, o], [n, *rows, g, o]]
    element = hlo.element_type(op.results[0])
    shape = [batch, *spatial, groups, outputs // groups]
    floats = isinstance(element, ir.FloatType)
    attribute = ir.FloatAttr.get(element, 0.0) if floats else ir.IntegerAttr.get(element, 0)
    nothing = arith.ConstantOp(element, attribute).result
    start = linalg.fill(nothing, outs=[tensor.EmptyOp(shape, element).result])
    kinds = ["parallel"] * (rank + 3) + ["reduction"] * (rank + 1)
    generic = ir.Operation.create(
        "linalg.generic",
        results=[ir.RankedTensorType.get(shape, element)],
        operands=[image, filters, start],
        attributes={
            "indexing_maps": ir.ArrayAttr.get(
                [ir.AffineMapAttr.get(ir.AffineMap.get(len(dims), 0, results)) for results in maps]
            ),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
        },
        regions=1,
    )
    block = generic.regions[0].blocks.append(*map(hlo.element_type, (image, filters)), element)
    with ir.InsertionPoint(block):
        *factors, total = block.arguments
        extend = arith.extf if floats else arith.extsi
        wide = [f if f.type == element else extend(element, f) for f in factors]
        product = arith.mulf(*wide) if floats else arith.muli(*wide)
        added = arith.addf(total, product) if floats else arith.addi(total, product)
        ir.Operation.create("linalg.yield", operands=[added])
    return hlo.reshape(generic.results[0], [batch, *spatial, outputs])
