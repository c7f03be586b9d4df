"""A loop that runs on the host, which calls its compiled body: what it carries changes its shape,
and how often is known at run time alone, or each iteration has shapes of its own.

    Loop(M, cond, states...) -> states..., stacked...

The body is a model: its inputs are the number of the iteration, the condition, the states, and what
it captures. Like any model it is compiled for the shapes that come, and once for any after that.
Where that cannot be, as shapes depend on one another through values, what moves elements and
computes shapes runs on the host, too, and the rest is compiled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx import helper

from stepwell.errors import InputError, ModelError
from stepwell.frontends.onnx import reader
from stepwell.frontends.onnx.dependencies import uses
from stepwell.frontends.onnx.functions import inlined
from stepwell.frontends.onnx.host_operators import MOVING
from stepwell.frontends.onnx.node import node_name

_MOST_COMPILED = 16
"""So often a body is compiled for shapes of one iteration."""


class Body(Protocol):
    """A compiled body."""

    def __call__(self, *arrays: np.ndarray | None) -> Sequence[np.ndarray]: ...


CompileBody = Callable[[onnx.ModelProto, frozenset[str]], Body]
"""Compiles a model, of which some operators stay on the host."""


class HostLoop:
    """The Loop whose first result is `name`, of the main graph of `model`: a path, bytes or a
    ModelProto. `compile_body` gets the body as a model of its own."""

    def __init__(self, model: object, name: str, compile_body: CompileBody) -> None:
        found = reader.find_model(model)
        assert found is not None
        self._model, self._compile = inlined(found), compile_body
        self._folder = Path(os.fspath(model)).parent if isinstance(model, (str, Path)) else Path()
        graph = self._model.graph
        self._node = next(n for n in graph.node if name == next(filter(None, n.output), ""))
        self._graph = next(a.g for a in self._node.attribute if a.name == "body")
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        # Those that are inputs, too, differ between calls.
        constant = self._initializers.keys() - {info.name for info in graph.input}
        inside = dict.fromkeys(uses(onnx.NodeProto(attribute=self._node.attribute)))
        self._constants = [self._initializers[name] for name in inside if name in constant]
        self._captured = [name for name in inside if name not in constant]
        self._body: Body | None = None
        self._is_whole = True

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results by name; `values` has what the loop reads beside initializers of the model.

        Raises InputError for iterations whose results do not stack, and what compiling the body
        and running it raises.
        """
        operands = [self._value(name, values) for name in self._node.input]
        trips, condition, *states = [*operands, None, None][: max(2, len(operands))]
        limit = None if trips is None else int(trips.item())
        goes_on = condition is None or bool(condition.item())
        captured = [self._value(name, values) for name in self._captured]
        rows: list[Sequence[np.ndarray]] = []
        for iteration in itertools.count() if limit is None else range(limit):
            if not goes_on:
                break
            inputs = [np.array(iteration, np.int64), np.array(True), *states, *captured]
            proceed, *results = self._called(inputs)
            goes_on = bool(proceed.item())
            states = results[: len(states)]
            rows.append(results[len(states) :])
        stacks = self._graph.output[1 + len(states) :]
        ends = [
            *states,
            *(self._stacked([row[i] for row in rows], n) for i, n in enumerate(stacks)),
        ]
        return {name: end for name, end in zip(self._node.output, ends, strict=False) if name}

    def _called(self, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        """The results of the body."""
        if self._body is None:
            self._body = self._compile(self._body_model(inputs), frozenset())
        elif self._is_whole and getattr(self._body, "compiled_for_one", 0) > _MOST_COMPILED:
            self._is_whole = False
            with contextlib.suppress(ModelError):  # types of values between may not be known
                self._body = self._compile(self._body_model(inputs), MOVING)
        return self._body(*inputs)

    def _value(self, name: str, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if not name or name in values:
            return values.get(name)
        return reader.tensor_array(self._initializers[name], self._folder)

    def _body_model(self, inputs: Sequence[np.ndarray | None]) -> onnx.ModelProto:
        """The body, with inputs like `inputs` in all but their shapes."""
        names = [*(info.name for info in self._graph.input), *self._captured]
        declared = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), None if array.ndim else ()
            )
            for name, array in zip(names, inputs, strict=True)
            if array is not None
        ]
        graph = helper.make_graph(
            self._graph.node,
            f"{node_name(self._node)}.body",
            declared,
            self._graph.output,
            [*self._graph.initializer, *self._constants],
            sparse_initializer=self._graph.sparse_initializer,
        )
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        model.ir_version = self._model.ir_version
        reader.load_weights(model, self._folder)
        return model

    def _stacked(self, parts: Sequence[np.ndarray], info: onnx.ValueInfoProto) -> np.ndarray:
        """Results of iterations on a new first dimension; of none, what is declared of them."""
        if not parts:
            kind = info.type.tensor_type
            sizes = [dimension.dim_value for dimension in kind.shape.dim]
            return np.zeros([0, *sizes], helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if any(part.shape != parts[0].shape for part in parts):
            shapes = " and ".join(dict.fromkeys(str(part.shape) for part in parts))
            raise InputError(
                f'{node_name(self._node)}: Loop: its iterations give "{info.name}" of the shapes '
                f"{shapes}, which do not stack"
            )
        return np.stack(parts)
