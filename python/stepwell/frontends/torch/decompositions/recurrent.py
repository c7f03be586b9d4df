"""Recurrent networks as loops: `nn.RNN`, `nn.GRU` and `nn.LSTM`, and their gradients.

The products of all inputs with their weights are one, ahead of the loop, `scan`; a step has only
the product of the hidden state with its weights.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.scan import scan_op

from stepwell.frontends.torch.decompositions.recurrent_cells import (
    Cell,
    Gru,
    Lstm,
    Relu,
    Tanh,
    Tensors,
)
from stepwell.frontends.torch.decompositions.registry import MENDS, mend
from stepwell.frontends.torch.decompositions.rules import instead

aten = torch.ops.aten


@mend(aten.lstm.input)
def _lstm(x: torch.Tensor, hx: Tensors, weights: Tensors, *settings: Any) -> object:
    """A projection makes h smaller than c."""
    projected = hx[0].shape[2] != hx[1].shape[2]
    return _network(Lstm(), x, hx, weights, projected, *settings)


@mend(aten.gru.input)
def _gru(x: torch.Tensor, hx: torch.Tensor, weights: Tensors, *settings: Any) -> object:
    return _network(Gru(), x, [hx], weights, False, *settings)


@mend(aten.rnn_tanh.input)
def _rnn_tanh(x: torch.Tensor, hx: torch.Tensor, weights: Tensors, *settings: Any) -> object:
    return _network(Tanh(), x, [hx], weights, False, *settings)


@mend(aten.rnn_relu.input)
def _rnn_relu(x: torch.Tensor, hx: torch.Tensor, weights: Tensors, *settings: Any) -> object:
    return _network(Relu(), x, [hx], weights, False, *settings)


@dataclass(frozen=True)
class _Weights:
    """Of one layer in one direction, matrices transposed: of the inputs [features, gates * hidden],
    of the hidden state [hidden, gates * hidden], of the projection [cell, hidden]."""

    inputs: torch.Tensor
    hidden: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection: torch.Tensor | None = None

    @staticmethod
    def of(given: Tensors, has_biases: bool, projected: bool) -> _Weights:
        # Contiguous, as functions of `scan` must not take views of each other.
        inputs, hidden = (matrix.t().contiguous() for matrix in given[:2])
        biases = (given[2], given[3]) if has_biases else (None, None)
        return _Weights(inputs, hidden, *biases, given[-1].t().contiguous() if projected else None)


def _network(
    cell: Cell,
    x: torch.Tensor,
    hx: Tensors,
    weights: Tensors,
    projected: bool,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> object:
    """All layers, each in one or both directions: what the last ones give at every step, and the
    last states [layers * directions, batch, hidden]."""
    own = 2 + 2 * has_biases + projected
    parts = [weights[start : start + own] for start in range(0, len(weights), own)]
    x = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    last: list[Tensors] = []
    for layer in range(0, len(parts), directions):
        outputs = []
        for number in range(layer, layer + directions):
            part = _Weights.of(parts[number], has_biases, projected)
            states = [state[number].clone() for state in hx]
            *after, y = _direction(cell, x, states, part, number > layer)
            outputs.append(y)
            last.append(after)
        x = torch.cat(outputs, 2) if bidirectional else outputs[0]
        if layer + directions < len(parts):
            x = aten.native_dropout(x, dropout, train)[0]
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(states) for states in zip(*last, strict=True))


def _direction(
    cell: Cell, x: torch.Tensor, states: Tensors, weights: _Weights, reverse: bool
) -> Tensors:
    """The states after the last step, and h at each step."""
    time, batch, features = x.shape
    inputs = x.reshape(-1, features) @ weights.inputs
    if weights.input_bias is not None:
        inputs = inputs + weights.input_bias
    inputs = inputs.view(time, batch, -1)
    others = (weights.hidden, weights.hidden_bias, weights.projection)
    given = [t for t in (inputs, *states, *others) if t is not None]
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return _WithGradient.apply(cell, reverse, inputs, *others, *states)  # pyright: ignore
    return _loop(cell, reverse, inputs, *others, states, 1)


def _loop(
    cell: Cell,
    reverse: bool,
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    states: Tensors,
    stacked: int,
) -> Tensors:
    """The states after the last step, and the first `stacked` of them at each step."""
    count = len(states)
    optional = [bias, projection]

    def step(*arguments: torch.Tensor) -> Tensors:
        before, x, weight = arguments[:count], arguments[count], arguments[count + 1]
        given = iter(arguments[count + 2 :])
        now_bias, now_projection = (None if t is None else next(given) for t in optional)
        products = before[0] @ weight
        products = products if now_bias is None else products + now_bias
        h, *rest = cell.after(before, x, products)
        h = h if now_projection is None else h @ now_projection
        after = [h, *rest]
        return *after, *(state.clone() for state in after[:stacked])

    others = (hidden, *(t for t in optional if t is not None))
    return _scan(step, states, [inputs], others, reverse)


def _scan(
    step: Callable[..., Tensors],
    states: Tensors,
    sequences: Tensors,
    others: Tensors,
    reverse: bool,
) -> Tensors:
    """`scan`, also backwards: the states after the last step, and the stacks in order of time."""
    if reverse:
        sequences = [sequence.flip(0) for sequence in sequences]
    found = scan_op(step, list(states), list(sequences), tuple(others))
    after, stacks = found[: len(states)], found[len(states) :]
    return *after, *(stack.flip(0) if reverse else stack for stack in stacks)


class _WithGradient(torch.autograd.Function):
    """`_loop` with backpropagation through time: a loop the other way, of which the products that
    give the gradients of the weights are one each, behind the loop."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        reverse: bool,
        inputs: torch.Tensor,
        hidden: torch.Tensor,
        bias: torch.Tensor | None,
        projection: torch.Tensor | None,
        *states: torch.Tensor,
    ) -> Tensors:
        count = len(states)
        found = _loop(cell, reverse, inputs, hidden, bias, projection, states, count)
        after, stacks = found[:count], found[count:]
        ctx.save_for_backward(inputs, hidden, bias, projection, *states, *stacks)
        ctx.cell, ctx.reverse, ctx.count = cell, reverse, count
        return *after, stacks[0].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *of_results: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore
        cell, count = ctx.cell, ctx.count
        inputs, hidden, bias, projection, *rest = ctx.saved_tensors
        *of_last, of_y = of_results
        before = [
            torch.cat([stack[1:], first[None]] if ctx.reverse else [first[None], stack[:-1]])
            for first, stack in zip(rest[:count], rest[count:], strict=True)
        ]
        time, batch, _ = inputs.shape
        flat_h = before[0].flatten(0, 1)
        products = flat_h @ hidden
        products = products if bias is None else products + bias
        products = products.view(time, batch, -1)
        transposed = [hidden.t().contiguous()]
        transposed += [] if projection is None else [projection.t().contiguous()]

        def step(*arguments: torch.Tensor) -> Tensors:
            of_after, (of_now, x, product) = arguments[:count], arguments[count : count + 3]
            states = arguments[count + 3 : 2 * count + 3]
            back, *back_projection = arguments[2 * count + 3 :]
            of_h = of_after[0] + of_now
            of_cell = of_h @ back_projection[0] if back_projection else of_h
            of_before, of_x, of_product = cell.gradients(
                [of_cell, *of_after[1:]], states, x, product
            )
            through = of_product @ back
            direct = of_before[0]
            of_before[0] = through if direct is None else through + direct
            stacked = [of_product] if of_x is of_product else [of_product, of_x]
            return *of_before, *stacked, *([of_h.clone()] if back_projection else [])

        sequences = [of_y, inputs, products, *before]
        found = _scan(step, of_last, sequences, transposed, not ctx.reverse)
        of_states, of_products, more = found[:count], found[count], list(found[count + 1 :])
        of_h = more.pop().flatten(0, 1) if projection is not None else None
        of_inputs = more[0] if more else of_products
        flat = of_products.flatten(0, 1)
        of_projection = None
        if of_h is not None:
            states = [state.flatten(0, 1) for state in before]
            h = cell.after(states, inputs.flatten(0, 1), products.flatten(0, 1))[0]
            of_projection = h.t() @ of_h
        of_bias = None if bias is None else flat.sum(0)
        return None, None, of_inputs, flat_h.t() @ flat, of_bias, of_projection, *of_states


_NETWORKS = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
for _network_operator in _NETWORKS:  # PyTorch's own rules copy every step
    for _key in (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd):
        instead(_network_operator, "py_kernels", _key)(MENDS[_network_operator])
