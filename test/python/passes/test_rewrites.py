"""The rewriting passes keep what a network computes.

Tolerances are relative to the largest result: a few f32 roundings, more where sums are reordered.
"""

from __future__ import annotations

import numpy as np
import pytest
from interpreter import dense

RNG = np.random.default_rng(2)
REORDERED = 1e-5

LAYOUT = """fold-constants,simplify-algebra,fold-scale-into-contraction,choose-layout,
decompose-for-linalg,fold-constants,propagate-transposes,fold-constants,simplify-algebra,cse"""


def tensor(shape: tuple[int, ...]) -> str:
    """The text of an f32 tensor type."""
    return f"tensor<{'x'.join(map(str, (*shape, 'f32')))}>"


def weights(shape: tuple[int, ...]) -> str:
    """A random constant of `shape`."""
    return f"stablehlo.constant {dense(RNG.standard_normal(shape).round(3))} : {tensor(shape)}"


SPATIAL = {1: "0", 2: "0, 1", 3: "0, 1, 2"}


def convolution(
    result: str,
    operands: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    window: str,
    groups: int = 1,
) -> str:
    """A convolution in the layout of ONNX; `shapes` are those of input, kernel and result."""
    spatial = SPATIAL[len(shapes[0]) - 2]
    types = [tensor(shape) for shape in shapes]
    return f"""{result} = stablehlo.convolution({operands})
      dim_numbers = [b, f, {spatial}]x[o, i, {spatial}]->[b, f, {spatial}], window = {{{window}}}
      {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
      : ({types[0]}, {types[1]}) -> {types[2]}"""


def per_channel(name: str, shape: tuple[int, ...]) -> str:
    """A random vector broadcast along dimension 1 of `shape`."""
    return f"""%v{name} = {weights((shape[1],))}
      %{name} = stablehlo.broadcast_in_dim %v{name}, dims = [1]
        : ({tensor((shape[1],))}) -> {tensor(shape)}"""


def test_batch_normalization_after_convolution(run_compared):
    shapes = (1, 3, 6, 6), (4, 3, 3, 3), (1, 4, 6, 6)
    t = tensor(shapes[2])
    text = f"""func.func @main(%x: {tensor(shapes[0])}) -> {t} {{
      %w = {weights(shapes[1])}
      {convolution("%c", "%x, %w", shapes, "pad = [[1, 1], [1, 1]]")}
      {per_channel("bias", shapes[2])}
      {per_channel("mean", shapes[2])}
      {per_channel("scale", shapes[2])}
      {per_channel("shift", shapes[2])}
      %0 = stablehlo.add %c, %bias : {t}
      %1 = stablehlo.subtract %0, %mean : {t}
      %2 = stablehlo.multiply %scale, %1 : {t}
      %3 = stablehlo.divide %2, %mean : {t}
      %4 = stablehlo.add %3, %shift : {t}
      return %4 : {t}
    }}"""
    result = run_compared(text, LAYOUT, REORDERED)
    assert result.text.count("stablehlo.add") == 1
    assert "stablehlo.multiply" not in result.text
    assert "stablehlo.divide" not in result.text


@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_scale_into_either_side_of_a_product(run_compared, side):
    x, w, operands = ("5x4", (4, 6), "%x, %w") if side == "rhs" else ("4x6", (5, 4), "%w, %x")
    varying = 1 if side == "rhs" else 0
    size = (5, 6)[varying]
    types = (f"tensor<{x}xf32>", tensor(w))
    types = types if side == "rhs" else types[::-1]
    text = f"""func.func @main(%x: tensor<{x}xf32>) -> tensor<5x6xf32> {{
      %w = {weights(w)}
      %v = {weights((size,))}
      %s = stablehlo.broadcast_in_dim %v, dims = [{varying}]
        : (tensor<{size}xf32>) -> tensor<5x6xf32>
      %d = stablehlo.dot_general {operands}, contracting_dims = [1] x [0]
        : ({types[0]}, {types[1]}) -> tensor<5x6xf32>
      %y = stablehlo.multiply %d, %s : tensor<5x6xf32>
      return %y : tensor<5x6xf32>
    }}"""
    assert "multiply" not in run_compared(text, "fold-scale-into-contraction").text


def test_scale_of_queries(run_compared):
    text = f"""func.func @main(%x: tensor<5x8xf32>) -> tensor<2x5x3xf32> {{
      %w = {weights((8, 6))}
      %v = {weights((6,))}
      %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<6xf32>) -> tensor<5x6xf32>
      %s = stablehlo.constant dense<0.3> : tensor<2x5x3xf32>
      %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<5x8xf32>, tensor<8x6xf32>) -> tensor<5x6xf32>
      %a = stablehlo.add %d, %b : tensor<5x6xf32>
      %r = stablehlo.reshape %a : (tensor<5x6xf32>) -> tensor<5x2x3xf32>
      %t = stablehlo.transpose %r, dims = [1, 0, 2] : (tensor<5x2x3xf32>) -> tensor<2x5x3xf32>
      %y = stablehlo.multiply %t, %s : tensor<2x5x3xf32>
      return %y : tensor<2x5x3xf32>
    }}"""
    assert "multiply" not in run_compared(text, "fold-scale-into-contraction").text


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_layouts(run_compared, rank, groups):
    size = (5, 6, 7)[:rank]
    shapes = (2, 4, *size), (8, 4 // groups, *[3] * rank), (2, 8, *(n // 2 + n % 2 for n in size))
    window = f"stride = {[2] * rank}, pad = {[[1, 1]] * rank}"
    text = f"""func.func @main(%x: {tensor(shapes[0])}) -> {tensor(shapes[2])} {{
      %w = {weights(shapes[1])}
      {convolution("%y", "%x, %w", shapes, window, groups)}
      return %y : {tensor(shapes[2])}
    }}"""
    result = run_compared(text, LAYOUT, REORDERED)
    assert result.text.count("stablehlo.convolution") == 1
    assert result.text.count("stablehlo.transpose") == 2


TRANSPOSED = [
    # kernel, stride, (low, high) of the convolution on the dilated input
    ((2, 2), (2, 2), (1, 1)),
    ((3, 3), (2, 2), (2, 3)),
    ((3, 3), (2, 2), (1, 2)),
    ((4, 4), (2, 2), (2, 2)),
    ((4, 4), (3, 3), (3, 5)),
    ((2, 3), (3, 2), (1, 1)),
    ((5, 2), (1, 4), (4, 0)),
    ((3, 3), (2, 2), (0, 0)),
]


@pytest.mark.parametrize(("kernel", "strides", "pads"), TRANSPOSED)
def test_transposed_convolution(run_compared, kernel, strides, pads):
    sizes = tuple(
        (n - 1) * s + 1 + sum(pads) - k + 1 for n, k, s in zip((4, 5), kernel, strides, strict=True)
    )
    shapes = (2, 3, 4, 5), (4, 3, *kernel), (2, 4, *sizes)
    window = f"pad = {[list(pads)] * 2}, lhs_dilate = {list(strides)}"
    text = f"""func.func @main(%x: {tensor(shapes[0])}) -> {tensor(shapes[2])} {{
      %w = {weights(shapes[1])}
      {convolution("%y", "%x, %w", shapes, window)}
      return %y : {tensor(shapes[2])}
    }}"""
    assert "lhs_dilate" not in run_compared(text, LAYOUT, REORDERED).text


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_transposed_convolution_with_strides_or_groups(run_compared, groups):
    shapes = (1, 4, 4, 4), (4, 4 // groups, 3, 3), (1, 4, 4, 4)
    window = "stride = [2, 2], pad = [[1, 2], [1, 2]], lhs_dilate = [2, 2]"
    text = f"""func.func @main(%x: {tensor(shapes[0])}) -> {tensor(shapes[2])} {{
      %w = {weights(shapes[1])}
      {convolution("%y", "%x, %w", shapes, window, groups)}
      return %y : {tensor(shapes[2])}
    }}"""
    assert "lhs_dilate" not in run_compared(text, LAYOUT, REORDERED).text


@pytest.mark.parametrize(
    ("batching", "contracting", "shapes"),
    [
        ("[] x []", "[1, 2] x [0, 1]", ("3x4x5", "4x5x6", "3x6")),
        ("[] x []", "[0, 2] x [2, 0]", ("4x3x5", "5x6x4", "3x6")),
        ("[1] x [2]", "[2] x [0]", ("3x2x5", "5x6x2", "2x3x6")),
        ("[1, 0] x [0, 1]", "[2] x [2]", ("2x3x5x4", "3x2x5x6", "3x2x4x6")),
    ],
)
def test_canonical_dot(run_compared, batching, contracting, shapes):
    lhs, rhs, result = (f"tensor<{shape}xf32>" for shape in shapes)
    text = f"""func.func @main(%x: {lhs}, %y: {rhs}) -> {result} {{
      %z = stablehlo.dot_general %x, %y, batching_dims = {batching},
        contracting_dims = {contracting} : ({lhs}, {rhs}) -> {result}
      return %z : {result}
    }}"""
    run_compared(text, "decompose-for-linalg", REORDERED)


def pooling(result: str, operand: str, source: tuple[int, ...], target: tuple[int, ...]) -> str:
    """A maximum over 3x3 windows of stride 2 in the layout of ONNX."""
    return f"""{result} = "stablehlo.reduce_window"({operand}, %lowest) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %m : tensor<f32>
      }}) {{window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 2, 2>,
        padding = dense<[[0, 0], [0, 0], [0, 1], [1, 1]]> : tensor<4x2xi64>}}
      : ({tensor(source)}, tensor<f32>) -> {tensor(target)}"""


def test_network_has_one_transpose(run_compared):
    """Residual, concatenation, pooling, squeeze and excitation, flattening before a product."""
    x, w, y, z = (1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 8, 8), (1, 8, 8, 8)
    pad = "pad = [[1, 1], [1, 1]]"
    text = f"""func.func @main(%x: {tensor(x)}) -> (tensor<1x5xf32>, tensor<1x8xf32>) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zeros = stablehlo.constant dense<0.0> : {tensor(y)}
      %w0 = {weights(w)}
      {convolution("%c0", "%x, %w0", (x, w, y), pad)}
      {per_channel("b0", y)}
      %a0 = stablehlo.add %c0, %b0 : {tensor(y)}
      %r0 = stablehlo.maximum %a0, %zeros : {tensor(y)}
      %w1 = {weights((4, 4, 3, 3))}
      {convolution("%c1", "%r0, %w1", (y, (4, 4, 3, 3), y), pad)}
      %res = stablehlo.add %c1, %r0 : {tensor(y)}
      %mean = stablehlo.reduce(%res init: %zero) applies stablehlo.add across dimensions = [2, 3]
        : ({tensor(y)}, tensor<f32>) -> tensor<1x4xf32>
      %gate = stablehlo.logistic %mean : tensor<1x4xf32>
      %gates = stablehlo.reshape %gate : (tensor<1x4xf32>) -> tensor<1x4x1x1xf32>
      %wide = stablehlo.broadcast_in_dim %gates, dims = [0, 1, 2, 3]
        : (tensor<1x4x1x1xf32>) -> {tensor(y)}
      %se = stablehlo.multiply %res, %wide : {tensor(y)}
      %cat = stablehlo.concatenate %se, %r0, dim = 1 : ({tensor(y)}, {tensor(y)}) -> {tensor(z)}
      {pooling("%pool", "%cat", z, (1, 8, 4, 4))}
      %flat = stablehlo.reshape %pool : (tensor<1x8x4x4xf32>) -> tensor<1x128xf32>
      %wf = {weights((128, 5))}
      %fc = stablehlo.dot_general %flat, %wf, contracting_dims = [1] x [0]
        : (tensor<1x128xf32>, tensor<128x5xf32>) -> tensor<1x5xf32>
      %gap = stablehlo.reduce(%pool init: %zero) applies stablehlo.add across dimensions = [2, 3]
        : (tensor<1x8x4x4xf32>, tensor<f32>) -> tensor<1x8xf32>
      return %fc, %gap : tensor<1x5xf32>, tensor<1x8xf32>
    }}"""
    result = run_compared(text, LAYOUT, REORDERED)
    assert result.text.count("stablehlo.transpose") == 1


def test_channel_shuffle(run_compared):
    x, w, y = (1, 3, 4, 4), (6, 3, 1, 1), (1, 6, 4, 4)
    text = f"""func.func @main(%x: {tensor(x)}) -> {tensor(y)} {{
      %w0 = {weights(w)}
      {convolution("%c0", "%x, %w0", (x, w, y), "")}
      %s = stablehlo.reshape %c0 : ({tensor(y)}) -> tensor<1x2x3x4x4xf32>
      %t = stablehlo.transpose %s, dims = [0, 2, 1, 3, 4]
        : (tensor<1x2x3x4x4xf32>) -> tensor<1x3x2x4x4xf32>
      %u = stablehlo.reshape %t : (tensor<1x3x2x4x4xf32>) -> {tensor(y)}
      %w1 = {weights((6, 6, 1, 1))}
      {convolution("%c1", "%u, %w1", (y, (6, 6, 1, 1), y), "")}
      return %c1 : {tensor(y)}
    }}"""
    # One at each end of the network, and the shuffle itself.
    assert run_compared(text, LAYOUT, REORDERED).text.count("stablehlo.transpose") == 3


@pytest.mark.parametrize(("batch", "groups"), [(1, 1), (1, 3), (2, 2), (2, 6)])
def test_group_normalization(run_compared, batch, groups):
    """Between two convolutions, its groups merged as exporters do: the layout stays."""
    x, w, y = (batch, 3, 4, 5), (6, 3, 1, 1), (batch, 6, 4, 5)
    merged, sums = (batch, groups, 120 // groups), (batch, groups)
    text = f"""func.func @main(%x: {tensor(x)}) -> {tensor(y)} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %w0 = {weights(w)}
      {convolution("%c0", "%x, %w0", (x, w, y), "")}
      %m = stablehlo.reshape %c0 : ({tensor(y)}) -> {tensor(merged)}
      %s = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [2]
        : ({tensor(merged)}, tensor<f32>) -> {tensor(sums)}
      %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : ({tensor(sums)}) -> {tensor(merged)}
      %d = stablehlo.subtract %m, %b : {tensor(merged)}
      %q = stablehlo.multiply %d, %d : {tensor(merged)}
      %v = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [2]
        : ({tensor(merged)}, tensor<f32>) -> {tensor(sums)}
      %r = stablehlo.sqrt %v : {tensor(sums)}
      %e = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({tensor(sums)}) -> {tensor(merged)}
      %n = stablehlo.divide %d, %e : {tensor(merged)}
      %i = stablehlo.reshape %n : ({tensor(merged)}) -> {tensor(y)}
      {per_channel("scale", y)}
      %z = stablehlo.multiply %i, %scale : {tensor(y)}
      %w1 = {weights((6, 6, 1, 1))}
      {convolution("%c1", "%z, %w1", (y, (6, 6, 1, 1), y), "")}
      return %c1 : {tensor(y)}
    }}"""
    # One at each end of the network.
    assert run_compared(text, LAYOUT, REORDERED).text.count("stablehlo.transpose") == 2


def test_attention_over_pixels(run_compared):
    """Channels first, as convolution networks have it: weights times values, not the other way."""
    x, w, y = (1, 3, 4, 5), (12, 3, 1, 1), (1, 12, 4, 5)
    text = f"""func.func @main(%x: {tensor(x)}, %p: {tensor((1, 2, 20, 20))}) -> {tensor(y)} {{
      %w0 = {weights(w)}
      {convolution("%c0", "%x, %w0", (x, w, y), "")}
      %v = stablehlo.reshape %c0 : ({tensor(y)}) -> {tensor((1, 2, 6, 20))}
      %d = stablehlo.dot_general %v, %p, batching_dims = [0, 1] x [0, 1],
        contracting_dims = [3] x [3]
        : ({tensor((1, 2, 6, 20))}, {tensor((1, 2, 20, 20))}) -> {tensor((1, 2, 6, 20))}
      %r = stablehlo.reshape %d : ({tensor((1, 2, 6, 20))}) -> {tensor(y)}
      %w1 = {weights((12, 12, 1, 1))}
      {convolution("%c1", "%r, %w1", (y, (12, 12, 1, 1), y), "")}
      return %c1 : {tensor(y)}
    }}"""
    assert "dot_general %arg1" in run_compared(text, LAYOUT, REORDERED).text


MOVES = {
    "pad": "stablehlo.pad %t, %v, low = [1, 0, 2], high = [0, -1, 0], interior = [0, 1, 0]",
    "slice": "stablehlo.slice %t [1:4, 0:3:2, 0:2]",
    "reverse": "stablehlo.reverse %t, dims = [0, 2]",
    "reshape": "stablehlo.reshape %t",
    "merge": "stablehlo.reshape %t",
    "broadcast": "stablehlo.broadcast_in_dim %t, dims = [0, 1, 3]",
    "compare": "stablehlo.compare LT, %t, %t",
}
RESULTS = {
    "pad": "5x4x4", "slice": "3x2x2", "reverse": "4x3x2", "reshape": "2x2x3x2",
    "merge": "12x2", "broadcast": "4x3x5x2", "compare": "4x3x2",
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("permutation", [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1]])
def test_moves_after_a_transpose(run_compared, name, permutation):
    source = [0, 0, 0]
    for position, d in enumerate(permutation):
        source[d] = (4, 3, 2)[position]
    kind = "i1" if name == "compare" else "f32"
    result = f"tensor<{RESULTS[name]}x{kind}>"
    operands = {
        "pad": "(tensor<4x3x2xf32>, tensor<f32>) ->",
        "compare": "(tensor<4x3x2xf32>, tensor<4x3x2xf32>) ->",
        "reverse": "",
    }
    text = f"""func.func @main(%x: {tensor(tuple(source))}) -> {result} {{
      %v = stablehlo.constant dense<7.0> : tensor<f32>
      %t = stablehlo.transpose %x, dims = {permutation}
        : ({tensor(tuple(source))}) -> tensor<4x3x2xf32>
      %y = {MOVES[name]} : {operands.get(name, "(tensor<4x3x2xf32>) ->")} {result}
      return %y : {result}
    }}"""
    run_compared(text, "propagate-transposes,simplify-algebra", 0)


ALGEBRA = [
    "%y = stablehlo.add %x, %zero : $T",
    "%y = stablehlo.divide %x, %eight : $T",
    "%y = stablehlo.power %x, %two : $T",
    "%0 = stablehlo.negate %x : $T\n%y = stablehlo.subtract %two, %0 : $T",
    "%0 = stablehlo.negate %x : $T\n%y = stablehlo.add %two, %0 : $T",
    "%0 = stablehlo.maximum %x, %zero : $T\n%y = stablehlo.maximum %0, %zero : $T",
    "%0 = stablehlo.slice %x [1:4, 0:4:2] : ($T) -> tensor<3x2xf32>\n"
    "%1 = stablehlo.slice %0 [0:3:2, 1:2] : (tensor<3x2xf32>) -> tensor<2x1xf32>\n"
    "%y = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x4xf32>",
    "%0 = stablehlo.concatenate %x, %two, dim = 1 : ($T, $T) -> tensor<4x8xf32>\n"
    "%y = stablehlo.slice %0 [0:4, 1:4:2] : (tensor<4x8xf32>) -> tensor<4x2xf32>",
    "%0 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : ($T) -> tensor<4x1x4xf32>\n"
    "%y = stablehlo.broadcast_in_dim %0, dims = [2, 1, 0]"
    " : (tensor<4x1x4xf32>) -> tensor<4x3x4xf32>",
]  # fmt: skip


@pytest.mark.parametrize("body", ALGEBRA)
def test_algebra(run_compared, body):
    result = body.rpartition(" -> ")[2] if "->" in body else "$T"
    text = f"""func.func @main(%x: $T) -> {result} {{
      %zero = stablehlo.constant dense<0.0> : $T
      %two = stablehlo.constant dense<2.0> : $T
      %eight = stablehlo.constant dense<8.0> : $T
      {body}
      return %y : {result}
    }}"""
    run_compared(text.replace("$T", "tensor<4x4xf32>"), "simplify-algebra", 0)
