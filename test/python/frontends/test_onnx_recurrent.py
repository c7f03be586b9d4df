"""RNN, GRU and LSTM with all their options, against the equations of the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import stepwell
from stepwell.frontends.time_steps import UNROLLED

STEPS, BATCH, INPUT, HIDDEN = 3, 3, 4, 5

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "LeakyRelu": lambda x: np.where(x >= 0, x, 0.3 * x),
    "HardSigmoid": lambda x: np.clip(0.4 * x + 0.6, 0, 1),
}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}

CASES: list[tuple[str, dict[str, object]]] = [
    ("RNN", {}),
    ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Softsign"]}),
    ("RNN", {"direction": "reverse", "lengths": True, "layout": 1}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "lengths": True}),
    ("GRU", {"clip": 0.3, "layout": 1, "direction": "reverse"}),
    ("LSTM", {}),
    ("LSTM", {"input_forget": 1, "peepholes": True, "layout": 1}),
    ("LSTM", {"direction": "bidirectional", "lengths": True, "peepholes": True, "clip": 0.5}),
    (
        "LSTM",
        {
            "activations": ["HardSigmoid", "LeakyRelu", "Softsign"],
            "activation_alpha": [0.4, 0.3],
            "activation_beta": [0.6],
        },
    ),
    ("LSTM", {"steps": UNROLLED + 1, "direction": "bidirectional", "lengths": True}),
    ("GRU", {"steps": UNROLLED + 2}),
]


def _step(
    kind: str, options: dict[str, object], f: list[Callable[[np.ndarray], np.ndarray]],
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, p: np.ndarray,
    states: list[np.ndarray],
) -> list[np.ndarray]:  # fmt: skip
    h = states[0]
    count = GATES[kind]
    wb, rb = (np.split(part, count) for part in np.split(b, 2))
    xw, hr = np.split(x @ w.T, count, axis=1), np.split(h @ r.T, count, axis=1)
    if kind == "RNN":
        return [f[0](xw[0] + hr[0] + wb[0] + rb[0])]
    if kind == "GRU":
        z = f[0](xw[0] + hr[0] + wb[0] + rb[0])
        reset = f[0](xw[1] + hr[1] + wb[1] + rb[1])
        if options.get("linear_before_reset"):
            inner = reset * (hr[2] + rb[2])
        else:
            inner = (reset * h) @ np.split(r, 3)[2].T + rb[2]
        return [(1 - z) * f[1](xw[2] + inner + wb[2]) + z * h]
    c = states[1]
    pi, po, pf = np.split(p, 3)
    i, o, forget, candidate = (xw[g] + hr[g] + wb[g] + rb[g] for g in range(4))
    i = f[0](i + pi * c)
    forget = 1 - i if options.get("input_forget") else f[0](forget + pf * c)
    c = forget * c + i * f[1](candidate)
    return [f[0](o + po * c) * f[2](c), c]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_recurrent(kind: str, options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    steps = int(str(options.get("steps", STEPS)))
    direction = str(options.get("direction", "forward"))
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    directions, gates = len(reverse), GATES[kind]

    def random(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = random(steps, BATCH, INPUT)
    w, r = random(directions, gates * HIDDEN, INPUT), random(directions, gates * HIDDEN, HIDDEN)
    b, p = random(directions, 2 * gates * HIDDEN), np.zeros((directions, 3 * HIDDEN), np.float32)
    if options.get("peepholes"):
        p = random(directions, 3 * HIDDEN)
    lengths = np.full(BATCH, steps, np.int32)
    if options.get("lengths"):
        lengths = np.array([steps, 1, steps - 1], np.int32)
    initial = [random(directions, BATCH, HIDDEN) for _ in range(2 if kind == "LSTM" else 1)]

    names = options.get("activations", DEFAULTS[kind] * directions)
    assert isinstance(names, list)
    clip = float(str(options.get("clip", 1e9)))
    functions = [lambda v, f=FUNCTIONS[n]: f(np.clip(v, -clip, clip)) for n in names]
    per_direction = len(DEFAULTS[kind])
    y = np.zeros((steps, directions, BATCH, HIDDEN), np.float32)
    finals: list[list[np.ndarray]] = []
    for d in range(directions):
        own = functions[d * per_direction : (d + 1) * per_direction]
        states = [state[d] for state in initial]
        for t in range(steps)[::-1] if reverse[d] else range(steps):
            after = _step(kind, options, own, x[t], w[d], r[d], b[d], p[d], states)
            valid = (t < lengths)[:, None]
            y[t, d] = np.where(valid, after[0], 0)
            states = [np.where(valid, a, s) for a, s in zip(after, states, strict=True)]
        finals.append(states)
    expected = [y, *(np.stack(parts) for parts in zip(*finals, strict=True))]

    feed = {"x": x, "w": w, "r": r, "b": b, "lens": lengths, "h": initial[0]}
    if options.get("layout"):
        feed["x"], feed["h"] = x.transpose(1, 0, 2), initial[0].transpose(1, 0, 2)
        expected = [y.transpose(2, 0, 1, 3), *(e.transpose(1, 0, 2) for e in expected[1:])]
    outputs = ["y", "y_h"]
    if kind == "LSTM":
        feed["c"] = initial[1].transpose(1, 0, 2) if options.get("layout") else initial[1]
        feed["p"] = p
        outputs.append("y_c")
    attributes: dict[str, Any] = {
        k: v for k, v in options.items() if k not in ("lengths", "peepholes", "steps")
    }
    node = helper.make_node(kind, list(feed), outputs, hidden_size=HIDDEN, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feed.items()}
    graph = helper.make_graph(
        [node],
        kind,
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in feed.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    results = stepwell.compile(model, threads=1)(*feed.values())
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)  # rounding of all steps
