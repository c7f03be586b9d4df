"""Operators of PyTorch that take functions, as branches and loops of StableHLO.

    %0:2 = torch.operator "scan"(%state, %xs, %w) {graphs = [@step], counts = [1, 1, 1]}
        : (!torch.vtensor<[2,8],f32>, !torch.vtensor<[40,2,8],f32>, !torch.vtensor<[8,8],f32>) -> ..

The passes of torch-mlir know no such operator. `hide` makes it a call that they leave alone
(`hidden_calls`), and `restore` what it stands for, once they have brought the functions that it
takes to StableHLO:

    %0:2 = stablehlo.while(...) { ... func.call @step(...) ... }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.time_steps import over_time
from stepwell.frontends.torch import hidden_calls
from stepwell.frontends.torch.hidden_calls import created
from stepwell.mlir import ir, nested_operations

Values = Sequence[ir.Value]


def hide(module: ir.Module) -> None:
    """Replace the operators in `module`, of the torch dialect, by calls."""
    found = [
        op
        for op in nested_operations(module.operation)
        if op.name == "torch.operator" and "graphs" in op.attributes
    ]
    if not found:
        return
    hidden_calls.load_casts()
    for function in module.body.operations:
        if "sym_visibility" in function.attributes:
            del function.attributes["sym_visibility"]  # nothing else would keep it
    for op in found:
        name = ir.StringAttr(op.attributes["name"]).value
        attributes = {key: op.attributes[key] for key in ("graphs", "counts", "reverse")}
        hidden_calls.hide(op, name, list(op.operands), attributes)


def restore(module: ir.Module) -> None:
    """Replace the calls in `module`, of StableHLO, by branches and loops."""
    for name, op in hidden_calls.hidden(module):
        if name not in _FORMS:
            continue
        counts = list(ir.DenseI64ArrayAttr(op.attributes["counts"]))
        graphs = [_Function(graph) for graph in ir.ArrayAttr(op.attributes["graphs"])]
        values = iter(op.operands)
        groups = [[next(values) for _ in range(count)] for count in counts]
        reverse = ir.BoolAttr(op.attributes["reverse"]).value
        with ir.InsertionPoint(op), op.location:
            results = _FORMS[name](graphs, groups, op, reverse)
        hidden_calls.replace(op, results)


class _Function:
    """A function of the module, to call."""

    def __init__(self, symbol: ir.Attribute) -> None:
        self._symbol = symbol

    def __call__(self, *operands: ir.Value, types: Sequence[ir.Type]) -> list[ir.Value]:
        return created("func.call", types, operands, {"callee": self._symbol})


Form = Callable[[Sequence[_Function], Sequence[list[ir.Value]], ir.Operation, bool], Values]
"""The results of an operator, given its functions, its operands by argument, itself as a call with
these results, and whether it goes backwards."""


def _cond(
    graphs: Sequence[_Function], groups: Sequence[list[ir.Value]], op: ir.Operation, reverse: bool
) -> Values:
    """(predicate, operands): the first function's results where the predicate holds."""
    (predicate,), operands = groups
    types = [result.type for result in op.results]
    with hlo.detached_block() as on_true, hlo.detached_block() as on_false:
        branches = []
        for block, graph in zip((on_true, on_false), graphs, strict=True):
            with ir.InsertionPoint(block):
                branches.append((block, graph(*operands, types=types)))
        with ir.InsertionPoint(op):  # not in the blocks
            return hlo.if_(hlo.reshape(predicate, []), branches[0], branches[1])


def _while_loop(
    graphs: Sequence[_Function], groups: Sequence[list[ir.Value]], op: ir.Operation, reverse: bool
) -> Values:
    """(carried, others): `body(*carried, *others)` while `condition(*carried, *others)`."""
    condition, body = graphs
    carried, others = groups
    types = [value.type for value in carried]
    truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))

    def goes_on(*now: ir.Value) -> ir.Value:
        (found,) = condition(*now, *others, types=[truth])
        return found

    return hlo.while_loop(carried, goes_on, lambda *now: body(*now, *others, types=types))


def _scan(
    graphs: Sequence[_Function], groups: Sequence[list[ir.Value]], op: ir.Operation, reverse: bool
) -> Values:
    """(states, sequences, others): `step(*states, *slices, *others)` gives the next states, and
    what is stacked."""
    (step,) = graphs
    states, sequences, others = groups
    stacks = [result.type for result in op.results][len(states) :]
    slices = [_without_time(kind) for kind in stacks]
    types = [*(state.type for state in states), *slices]

    def once(t: ir.Value, inputs: Values, before: Values) -> tuple[Values, Values]:
        after = step(*before, *inputs, *others, types=types)
        return after[: len(states)], after[len(states) :]

    length = hlo.shape(sequences[0])[0]
    results = [(list(kind.shape), dtypes.to_numpy(kind.element_type)) for kind in slices]
    # A loop at any other length: programs for several sizes have to be the same.
    last, stacked = over_time(once, sequences, states, results, length, reverse=reverse, unrolled=1)
    return [*last, *stacked]


def _map(
    graphs: Sequence[_Function], groups: Sequence[list[ir.Value]], op: ir.Operation, reverse: bool
) -> Values:
    """(sequences, others): a scan without states."""
    return _scan(graphs, [[], *groups], op, reverse)


_FORMS: Mapping[str, Form] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}


def _without_time(kind: ir.Type) -> ir.RankedTensorType:
    tensor = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get(list(tensor.shape)[1:], tensor.element_type)


__all__ = ["hide", "restore"]
