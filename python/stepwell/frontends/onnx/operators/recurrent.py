"""Recurrent networks: RNN, GRU, LSTM.

The products of all inputs with W are one `dot_general` ahead of the loop; a step of the loop has
only the product of the hidden state with R.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import along
from stepwell.frontends.time_steps import over_time
from stepwell.mlir import ir

Values = Sequence[ir.Value]
Activation = Callable[[ir.Value], ir.Value]


@dataclass(frozen=True)
class _Direction:
    """What one direction computes with: slices of the node's inputs, biases summed or None."""

    activations: list[Activation]
    r: ir.Value
    """[gates * hidden, hidden]."""
    r_bias: ir.Value | None
    """The part of the bias that belongs to R, [gates * hidden]."""
    peepholes: list[ir.Value] | None
    """Broadcast to [batch, hidden]: of the input, the output and the forget gate."""


Cell = Callable[[_Direction, ir.Value, Values], Values]
"""The states after a step, from x @ W.T + biases [batch, gates * hidden] and those before."""


@operator("RNN")
def rnn(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
) -> list[Result]:
    """`H = f(x W' + H R' + Wb + Rb)`."""

    def cell(part: _Direction, gates: ir.Value, states: Values) -> Values:
        (h,), (f,) = states, part.activations
        return [f(hlo.add(gates, _times(h, part.r)))]

    return _recurrent(node, x, w, r, b, sequence_lens, [initial_h], None, cell, ["Tanh"])


@operator("GRU")
def gru(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
) -> list[Result]:
    """Gates in the order z, r, h: `H = (1 - z) h + z H`; r resets before or after R's product."""
    late = bool(node.integer("linear_before_reset", 0))

    def cell(part: _Direction, gates: ir.Value, states: Values) -> Values:
        (h,), (f, g) = states, part.activations
        hidden = hlo.shape(h)[1]
        xz, xr, xh = _split(gates, 3)
        if late:
            product = _biased(_times(h, part.r), part.r_bias)
            rz, rr, rh = _split(product, 3)
            reset = f(hlo.add(xr, rr))
            candidate = g(hlo.add(xh, hlo.multiply(reset, rh)))
        else:
            rz, rr = _split(_times(h, _rows(part.r, 0, 2 * hidden)), 2)
            reset = f(hlo.add(xr, rr))
            kept = _times(hlo.multiply(reset, h), _rows(part.r, 2 * hidden, 3 * hidden))
            candidate = g(hlo.add(xh, kept))
        update = f(hlo.add(xz, rz))
        fresh = hlo.multiply(hlo.subtract(hlo.full_like(update, 1), update), candidate)
        return [hlo.add(fresh, hlo.multiply(update, h))]

    names = ["Sigmoid", "Tanh"]
    return _recurrent(
        node, x, w, r, b, sequence_lens, [initial_h], None, cell, names, separate_bias=late
    )


@operator("LSTM")
def lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
) -> list[Result]:
    """Gates in the order i, o, f, c: `C = f C + i c`, `H = o h(C)`."""
    coupled = bool(node.integer("input_forget", 0))

    def cell(part: _Direction, gates: ir.Value, states: Values) -> Values:
        (h, c), (f, g, last) = states, part.activations
        i, o, forget, candidate = _split(hlo.add(gates, _times(h, part.r)), 4)
        if part.peepholes:
            i = hlo.add(i, hlo.multiply(part.peepholes[0], c))
            forget = hlo.add(forget, hlo.multiply(part.peepholes[2], c))
        i = f(i)
        forget = hlo.subtract(hlo.full_like(i, 1), i) if coupled else f(forget)
        cell_state = hlo.add(hlo.multiply(forget, c), hlo.multiply(i, g(candidate)))
        if part.peepholes:
            o = hlo.add(o, hlo.multiply(part.peepholes[1], cell_state))
        return [hlo.multiply(f(o), last(cell_state)), cell_state]

    names = ["Sigmoid", "Tanh", "Tanh"]
    initial = [initial_h, initial_c]
    return _recurrent(node, x, w, r, b, sequence_lens, initial, p, cell, names)


def _recurrent(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    sequence_lens: Tensor | None,
    initial: list[Tensor | None],
    p: Tensor | None,
    cell: Cell,
    names: list[str],
    *,
    separate_bias: bool = False,
) -> list[Result]:
    """All directions of `cell`: Y, and the last value of each state.

    Its biases are added to the products with W; with `separate_bias`, R's are left to the cell.
    """
    batch_first = bool(node.integer("layout", 0))
    sequence = hlo.transpose(x.value, [1, 0, 2]) if batch_first else x.value
    length, batch, _ = hlo.shape(sequence)
    directions, size, hidden = r.shape
    order = _directions(node, directions)
    activations = _activations(node, names, directions)
    lengths = None
    if sequence_lens is not None:
        lengths = along(sequence_lens, 0, [batch, hidden])
    y_parts: list[ir.Value] = []
    state_parts: list[list[ir.Value]] = []
    for d, reverse in enumerate(order):
        bias = None if b is None else _row(b.value, d)
        w_bias = None if bias is None else hlo.slice(bias, [0], [size])
        r_bias = None if bias is None else hlo.slice(bias, [size], [2 * size])
        gates = hlo.dot_general(sequence, _row(w.value, d), ([2], [1]))
        gates = _biased(gates, w_bias)
        if not separate_bias:
            gates = _biased(gates, r_bias)
        part = _Direction(
            activations[d],
            _row(r.value, d),
            r_bias,
            None if p is None else _peepholes(_row(p.value, d), batch),
        )
        states = [_initial(node, t, d, [batch, hidden], x.dtype) for t in initial]

        def step(
            t: ir.Value, inputs: Values, states: Values, part: _Direction = part
        ) -> tuple[Values, Values]:
            after = list(cell(part, inputs[0], states))
            added = after[0]
            if lengths is not None:
                now = hlo.broadcast_in_dim(hlo.convert(t, hlo.dtype(lengths)), [batch, hidden], [])
                valid = hlo.compare(now, lengths, "LT")
                pairs = zip(after, states, strict=True)
                after = [hlo.select(valid, new, old) for new, old in pairs]
                added = hlo.select(valid, added, hlo.full_like(added, 0))
            return after, [added] if _wanted(node, 0) else []

        results = [([batch, hidden], x.dtype)] if _wanted(node, 0) else []
        last, stacked = over_time(step, [gates], states, results, length, reverse=reverse)
        y_parts += [hlo.reshape(y, [length, 1, batch, hidden]) for y in stacked]
        state_parts.append([hlo.reshape(s, [1, batch, hidden]) for s in last])
    last_states = [hlo.concatenate(parts, 0) for parts in zip(*state_parts, strict=True)]
    y = hlo.concatenate(y_parts, 1) if y_parts else None
    if batch_first:
        y = None if y is None else hlo.transpose(y, [2, 0, 1, 3])
        last_states = [hlo.transpose(state, [1, 0, 2]) for state in last_states]
    return [np.zeros(0, x.dtype) if y is None else y, *last_states]


def _wanted(node: Node, output: int) -> bool:
    return len(node.proto.output) > output and bool(node.proto.output[output])


def _directions(node: Node, count: int) -> list[bool]:
    """For each direction, whether it runs backwards."""
    known = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    direction = node.text("direction", "forward")
    order = known.get(direction.lower())
    if order is None or len(order) != count:
        node.unsupported(f'the direction "{direction}" does not fit weights of {count} directions')
    return order


def _row(value: ir.Value, d: int) -> ir.Value:
    """Slice d of the first dimension, which is dropped."""
    return hlo.reshape(_rows(value, d, d + 1), hlo.shape(value)[1:])


def _rows(value: ir.Value, start: int, end: int) -> ir.Value:
    rest = hlo.shape(value)[1:]
    return hlo.slice(value, [start, *[0] * len(rest)], [end, *rest])


def _split(gates: ir.Value, count: int) -> list[ir.Value]:
    """The gates of [batch, count * hidden]."""
    batch, size = hlo.shape(gates)
    hidden = size // count
    return [hlo.slice(gates, [0, i * hidden], [batch, (i + 1) * hidden]) for i in range(count)]


def _times(h: ir.Value, r: ir.Value) -> ir.Value:
    return hlo.dot_general(h, r, ([1], [1]))


def _biased(value: ir.Value, bias: ir.Value | None) -> ir.Value:
    if bias is None:
        return value
    shape = hlo.shape(value)
    return hlo.add(value, along(bias, len(shape) - 1, shape))


def _peepholes(p: ir.Value, batch: int) -> list[ir.Value]:
    hidden = hlo.shape(p)[0] // 3
    parts = [hlo.slice(p, [i * hidden], [(i + 1) * hidden]) for i in range(3)]
    return [along(part, 1, [batch, hidden]) for part in parts]


def _initial(
    node: Node, state: Tensor | None, d: int, shape: list[int], kind: np.dtype
) -> ir.Value:
    if state is None:
        return hlo.full(0, shape, kind)
    value = state.value
    if node.integer("layout", 0):
        value = hlo.transpose(value, [1, 0, 2])
    return _row(value, d)


# --- Activations ---------------------------------------------------------------------------------


def _constant(x: ir.Value, value: float) -> ir.Value:
    return hlo.full_like(x, value)


def _linear(x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return hlo.add(hlo.multiply(x, _constant(x, alpha)), _constant(x, beta))


def _softplus(x: ir.Value) -> ir.Value:
    tail = hlo.log_plus_one(hlo.exponential(hlo.negate(hlo.abs(x))))
    return hlo.add(hlo.maximum(x, _constant(x, 0)), tail)


def _from(x: ir.Value, threshold: float, below: ir.Value) -> ir.Value:
    """x where it reaches the threshold, else `below`."""
    return hlo.select(hlo.compare(x, _constant(x, threshold), "GE"), x, below)


_FUNCTIONS: dict[str, tuple[Callable[[ir.Value, float, float], ir.Value], tuple[float, ...]]] = {
    "affine": (_linear, (1.0, 0.0)),
    "elu": (
        lambda x, a, b: _from(x, 0, hlo.multiply(_constant(x, a), hlo.exponential_minus_one(x))),
        (1.0,),
    ),
    "hardsigmoid": (
        lambda x, a, b: hlo.minimum(
            hlo.maximum(_linear(x, a, b), _constant(x, 0)), _constant(x, 1)
        ),
        (0.2, 0.5),
    ),
    "leakyrelu": (lambda x, a, b: _from(x, 0, hlo.multiply(_constant(x, a), x)), (0.01,)),
    "relu": (lambda x, a, b: hlo.maximum(x, _constant(x, 0)), ()),
    "scaledtanh": (
        lambda x, a, b: hlo.multiply(_constant(x, a), hlo.tanh(hlo.multiply(_constant(x, b), x))),
        (1.0, 1.0),
    ),
    "sigmoid": (lambda x, a, b: hlo.logistic(x), ()),
    "softplus": (lambda x, a, b: _softplus(x), ()),
    "softsign": (
        lambda x, a, b: hlo.divide(x, hlo.add(hlo.abs(x), _constant(x, 1))),
        (),
    ),
    "tanh": (lambda x, a, b: hlo.tanh(x), ()),
    "thresholdedrelu": (lambda x, a, b: _from(x, a, _constant(x, 0)), (1.0,)),
}
"""Each activation with the defaults of its alpha and beta, where it has them."""


def _activations(node: Node, defaults: list[str], directions: int) -> list[list[Activation]]:
    """The activations of every direction, the input of each clipped."""
    given = node.proto.attribute
    names = next(
        ([text.decode() for text in a.strings] for a in given if a.name == "activations"),
        defaults * directions,
    )
    if len(names) != len(defaults) * directions:
        node.unsupported(
            f"{len(names)} activations are given for {len(defaults)} functions "
            f"in {directions} directions"
        )
    for name in names:
        if name.lower() not in _FUNCTIONS:
            node.unsupported(f'the activation "{name}" is not known')
    functions = [_FUNCTIONS[name.lower()] for name in names]
    alphas = _parameters(node, "activation_alpha", [own[:1] for _, own in functions])
    betas = _parameters(node, "activation_beta", [own[1:] for _, own in functions])
    clip = node.number("clip", 0.0)

    def bind(i: int) -> Activation:
        function = functions[i][0]

        def apply(x: ir.Value) -> ir.Value:
            if clip:
                x = hlo.maximum(hlo.minimum(x, _constant(x, clip)), _constant(x, -clip))
            return function(x, alphas[i], betas[i])

        return apply

    bound = [bind(i) for i in range(len(names))]
    count = len(defaults)
    return [bound[d * count : (d + 1) * count] for d in range(directions)]


def _parameters(node: Node, name: str, defaults: list[tuple[float, ...]]) -> list[float]:
    """One parameter a function: given for all functions, or only for those that have it."""
    given = node.numbers(name, [])
    users = [i for i, own in enumerate(defaults) if own]
    places = list(range(len(defaults))) if len(given) == len(defaults) else users
    if len(given) > len(places):
        node.unsupported(f"{name} has {len(given)} values for {len(places)} activations")
    values = [own[0] if own else 0.0 for own in defaults]
    for place, value in zip(places, given, strict=False):
        values[place] = value
    return values
