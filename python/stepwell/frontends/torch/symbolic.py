"""Graphs of PyTorch whose sizes are symbols: what a call says of them, and the graph at some.

placeholders: arg0: Sym(s0), arg1: float32[s0, 64], arg2: float32[2*s0, 8]
-> open sizes {"s0": 16}, shapes {"arg1": ("s0", 64), "arg2": ("2*s0", 8)}
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stepwell.frontends.torch.decompositions import decompositions
from stepwell.sizes import LEAST_CAPACITY, OpenShapes, Sum

Expression = Any  # of sympy, which has no types
Sizes = Mapping[sympy.Symbol, int]


def fake_mode() -> torch._subclasses.FakeTensorMode:
    """What values for `trace_at` are made in."""
    shape_env = ShapeEnv()  # loops ask for it
    return torch._subclasses.FakeTensorMode(
        allow_non_fake_inputs=True, shape_env=shape_env, static_shapes=True
    )


def trace_at(
    module: torch.fx.GraphModule,
    mode: torch._subclasses.FakeTensorMode,
    values: Sequence[object],
) -> torch.fx.GraphModule:
    """The graph traced again for known sizes: those of `values`, one for each placeholder."""
    with torch.no_grad(), warnings.catch_warnings(), mode:
        warnings.simplefilter("ignore")
        flat = make_fx(
            lambda *inputs: torch.fx.Interpreter(module).run(*inputs),
            decomposition_table=decompositions(),  # pyright: ignore[reportArgumentType]
            tracing_mode="real",
            _allow_non_fake_inputs=True,
        )
        return flat(*values)


@dataclass(frozen=True)
class _Place:
    """Where a call says the size of a symbol: a dimension of an input, as factor * symbol + rest"""

    number: int
    dimension: int
    factor: int
    rest: int


class SymbolicGraph:
    """A graph of which sizes of inputs are sums of multiples of symbols."""

    def __init__(self, module: torch.fx.GraphModule, places: Mapping[sympy.Symbol, _Place]) -> None:
        self._module, self._places = module, places
        nodes = list(module.graph.nodes)
        self._metas = [node.meta.get("val") for node in nodes if node.op == "placeholder"]
        self._results = list(nodes[-1].args[0])

    @staticmethod
    def of(module: torch.fx.GraphModule) -> SymbolicGraph | None:
        """None for a graph whose sizes are numbers, and where inputs have sizes of another form or
        numbers that no size of an input tells."""
        metas = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
        places: dict[sympy.Symbol, _Place] = {}
        symbols: set[sympy.Symbol] = set()
        for number, meta in enumerate(metas):
            if isinstance(meta, (torch.SymFloat, torch.SymBool)):
                return None
            if isinstance(meta, torch.SymInt):
                symbols |= _expression(meta).free_symbols
            if not isinstance(meta, torch.Tensor):
                continue
            for dimension, size in enumerate(meta.shape):
                terms = _linear(_expression(size))
                if terms is None:
                    return None
                rest = terms.pop(None, 0)
                symbols |= {symbol for symbol in terms if symbol is not None}
                if len(terms) == 1:
                    ((symbol, factor),) = terms.items()
                    if symbol is not None and factor > 0:
                        places.setdefault(symbol, _Place(number, dimension, factor, rest))
        if not symbols or symbols != set(places):
            return None
        return SymbolicGraph(module, places)

    def sizes(self, values: Sequence[object]) -> dict[sympy.Symbol, int]:
        """The sizes of a call with a value for each placeholder."""
        found = {}
        for symbol, place in self._places.items():
            value = values[place.number]
            assert isinstance(value, torch.Tensor)
            found[symbol] = (value.shape[place.dimension] - place.rest) // place.factor
        return found

    def shapes(self, names: Mapping[int, str], capacities: Sizes) -> OpenShapes:
        """The open shapes of the placeholders in `names`, by number."""
        shapes: dict[str, tuple[int | str, ...]] = {}
        sums: dict[str, Sum] = {}
        for number, name in names.items():
            meta = self._metas[number]
            assert isinstance(meta, torch.Tensor)
            shape: list[int | str] = []
            for size in meta.shape:
                expression = _expression(size)
                if expression.is_Integer:
                    shape.append(int(expression))
                    continue
                shape.append(str(expression))
                if not expression.is_Symbol:
                    terms = _linear(expression) or {}
                    sums[str(expression)] = tuple((str(s or ""), f) for s, f in terms.items())
            shapes[name] = tuple(shape)
        return OpenShapes(shapes, {str(s): most for s, most in capacities.items()}, sums)

    def traced(self, sizes: Sizes) -> torch.fx.GraphModule:
        """The graph for these sizes."""

        def value(meta: object) -> object:
            if isinstance(meta, torch.SymInt):
                return _at(meta, sizes)
            if not isinstance(meta, torch.Tensor):
                return meta
            shape = [_at(size, sizes) for size in meta.shape]
            strides = [_at(stride, sizes) for stride in meta.stride()]
            return torch.empty_strided(shape, strides, dtype=meta.dtype)

        mode = fake_mode()
        with mode:
            values = [value(meta) for meta in self._metas]
        return trace_at(self._module, mode, values)

    def numbers(self, sizes: Sizes) -> dict[int, object]:
        """The results that are no tensors, by number."""
        found: dict[int, object] = {}
        for number, node in enumerate(self._results):
            value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
            if isinstance(value, torch.SymInt):
                found[number] = _at(value, sizes)
            elif not isinstance(value, torch.Tensor):
                found[number] = value
        return found


def capacity(size: int) -> int:
    """The largest size for which code is made when a call has this one."""
    return max(LEAST_CAPACITY, 1 << (size - 1).bit_length())


def _expression(size: int | torch.SymInt) -> Expression:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _at(size: int | torch.SymInt, sizes: Sizes) -> int:
    return int(_expression(size).xreplace({s: sympy.Integer(n) for s, n in sizes.items()}))


def _linear(expression: Expression) -> dict[sympy.Symbol | None, int] | None:
    """The factors of the symbols that it adds up, None standing for the number one; None where it
    is no such sum."""
    found: dict[sympy.Symbol | None, int] = {}
    for term, factor in expression.as_coefficients_dict().items():
        if int(factor) != factor:
            return None
        if term == 1:
            found[None] = int(factor)
        elif isinstance(term, sympy.Symbol):
            found[term] = int(factor)
        else:
            return None
    return found
