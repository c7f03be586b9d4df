"""LinearAttention: a recurrent state in place of scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.time_steps import over_time
from stepwell.mlir import ir

Values = Sequence[ir.Value]


@operator("LinearAttention")
def linear_attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> list[Result]:
    """`S = exp(g) S + k (x) v'`, `o = scale * q S`, where v' is v or `beta * (v - k S)`.

    The state S is [batch, heads, d_k, d_v], in float32 (or wider) whatever the inputs are.
    """
    _check(node, query, key, value, decay, beta)
    batch, length, width = query.shape
    q_heads, heads = node.integer("q_num_heads", 1), node.integer("kv_num_heads", 1)
    d_k, d_v = width // q_heads, value.shape[2] // heads
    group = q_heads // heads
    wide = np.dtype(np.float32 if query.dtype.itemsize < 4 else query.dtype)
    scale = node.number("scale", 0.0) or 1 / np.sqrt(d_k)
    state_shape = [batch, heads, d_k, d_v]
    of_heads = ([0, 1], [0, 1])

    def steps(tensor: Tensor, *shape: int) -> ir.Value:
        """[batch, time, heads * d] as [time, batch, ...shape]."""
        unpacked = hlo.reshape(hlo.convert(tensor.value, wide), [batch, length, *shape])
        return hlo.transpose(unpacked, [1, 0, *range(2, 2 + len(shape))])

    sequences = [steps(query, heads, group, d_k), steps(key, heads, d_k), steps(value, heads, d_v)]
    if decay is not None:
        sequences.append(hlo.exponential(steps(decay, heads, decay.shape[2] // heads)))
    if beta is not None:
        sequences.append(steps(beta, beta.shape[2]))

    def step(t: ir.Value, inputs: Values, states: Values) -> tuple[Values, Values]:
        q, k, v, *rest = inputs
        (state,) = states
        if decay is not None:
            factor = rest.pop(0)
            kept = [0, 1, 2] if hlo.shape(factor)[2] == d_k else [0, 1]
            factor = factor if len(kept) == 3 else hlo.reshape(factor, [batch, heads])
            state = hlo.multiply(state, hlo.broadcast_in_dim(factor, state_shape, kept))
        if beta is not None:
            rate = rest.pop(0)
            kept = [0, 1] if hlo.shape(rate)[1] == heads else [0]
            rate = rate if len(kept) == 2 else hlo.reshape(rate, [batch])
            retrieved = hlo.dot_general(k, state, ([2], [2]), of_heads)
            rate = hlo.broadcast_in_dim(rate, [batch, heads, d_v], kept)
            v = hlo.multiply(rate, hlo.subtract(v, retrieved))
        outer = hlo.multiply(
            hlo.broadcast_in_dim(k, state_shape, [0, 1, 2]),
            hlo.broadcast_in_dim(v, state_shape, [0, 1, 3]),
        )
        state = hlo.add(state, outer)
        return [state], [hlo.dot_general(q, state, ([3], [2]), of_heads)]

    initial = hlo.full(0, state_shape, wide)
    if past_state is not None:
        initial = hlo.convert(past_state.value, wide)
    results = [([batch, heads, group, d_v], wide)]
    (state,), (stacked,) = over_time(step, sequences, [initial], results, length)
    output = hlo.multiply(stacked, hlo.full_like(stacked, scale))
    output = hlo.reshape(hlo.transpose(output, [1, 0, 2, 3, 4]), [batch, length, q_heads * d_v])
    kind = query.dtype if past_state is None else past_state.dtype
    return [hlo.convert(output, query.dtype), hlo.convert(state, kind)]


def _check(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor | None,
    beta: Tensor | None,
) -> None:
    """Refuse inputs that do not belong to the update rule, and heads that do not divide."""
    rule = node.text("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        node.unsupported(f'the update rule "{rule}" is not known')
    for tensor, name, word in ((decay, "decay", "gated"), (beta, "beta", "delta")):
        if (tensor is not None) != (word in rule):
            verb = "needs" if tensor is None else "does not take"
            node.unsupported(f'the update rule "{rule}" {verb} the input {name}')
    q_heads, heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    if heads <= 0 or q_heads <= 0 or q_heads % heads:
        node.unsupported(f"{q_heads} query heads are no multiple of {heads} key and value heads")
    if not query.rank == key.rank == value.rank == 3:
        node.unsupported("query, key and value have to be of rank 3")
