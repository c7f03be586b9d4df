"""`stepwell.compare`: layer by layer, how far what a model computes is from a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from stepwell.compiler import Compiled, compile
from stepwell.errors import UsageError
from stepwell.inspection.intermediates import Instrumented, Layer, instrumented
from stepwell.inspection.references import ONNX_ONLY, REFERENCES
from stepwell.options import CompileOptions, make_options
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array, named_inputs
from stepwell.sources import Shapes

RTOL, ATOL = 1e-3, 1e-4
"""Default tolerances; the absolute one is a part of the largest number of a layer."""


@dataclass(frozen=True)
class Difference:
    """How far an array is from the reference: the largest difference of a number, the same over
    the reference's largest number, the cosine between the two as vectors, and how many of `size`
    numbers are out of tolerance."""

    largest: float
    relative: float
    cosine: float
    out: int
    size: int


@dataclass(frozen=True)
class LayerReport:
    """A layer's value beside that of the reference, `type` as `float32[2, 3]`. `growth` is the
    relative difference over the largest of its inputs', where they have one."""

    layer: Layer
    type: str
    difference: Difference
    growth: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The layers in the order of the program, of the model compiled with all their values as
    outputs, in `kernels` kernels where it has `own_kernels` by itself; `outputs` are those of the
    model itself. `left_out` are values that are no arrays of numbers."""

    reference: str
    rtol: float
    atol: float | None
    layers: tuple[LayerReport, ...]
    outputs: tuple[LayerReport, ...]
    left_out: tuple[str, ...]
    kernels: int | None
    own_kernels: int | None

    @property
    def first_out(self) -> LayerReport | None:
        """The first layer out of tolerance, or else the first such output of the model itself."""
        every = (*self.layers, *self.outputs)
        return next((report for report in every if report.difference.out), None)

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        first = self.first_out
        return {**asdict(self), "first_out": None if first is None else first.layer.node}


def compare(
    model: object,
    feed: Mapping[str, object],
    target: str = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
    *,
    reference: str | None = None,
    rtol: float = RTOL,
    atol: float | None = None,
) -> Comparison:
    """Run `model` on the arrays of `feed`, by input name, and compare all its values with those of
    `reference`: "onnx" (the evaluator in onnx, default for ONNX), "onnxruntime", "interpreter" (of
    StableHLO) or "-O0" (this compiler's, default for other models).

    A number is out of tolerance where it differs by more than `atol` (default: 1e-4 of the largest
    in the layer) and `rtol` of the reference's. Other arguments are as for `stepwell.compile`.

    Raises UsageError for a reference that does not read the model, Error where it fails, and what
    compiling and calling raise.
    """
    if reference is not None and reference not in REFERENCES:
        listed = ", ".join(REFERENCES)
        raise UsageError(f"there is no reference {reference}; there are: {listed}")
    made = make_options(options)
    exe = compile(model, target, threads, shapes, made)
    arrays = [
        input_array(spec.name, value, spec.dtype)
        for spec, value in zip(exe.inputs, named_inputs(exe.inputs, feed), strict=True)
    ]
    names = [spec.name for spec in exe.inputs]
    known = {name: array.shape for name, array in zip(names, arrays, strict=True)}
    probed = instrumented(model, known)
    chosen = reference or ("-O0" if isinstance(probed.model, bytes) else "onnx")
    if chosen in ONNX_ONLY and isinstance(probed.model, bytes):
        raise UsageError(f"{chosen} runs ONNX models alone; compare with interpreter or -O0")
    own = exe(*arrays)
    again = compile(probed.model, target, threads, known, made)
    found = probed.by_value(again(*arrays))
    expected = probed.by_value(REFERENCES[chosen](probed.model, names, arrays))
    layers, left_out = _layers(probed, found, expected, rtol, atol)
    return Comparison(
        chosen,
        rtol,
        atol,
        layers,
        _outputs(probed, own, expected, rtol, atol),
        left_out,
        _kernels(again),
        _kernels(exe),
    )


def _layers(
    probed: Instrumented,
    found: Mapping[str, object],
    expected: Mapping[str, object],
    rtol: float,
    atol: float | None,
) -> tuple[tuple[LayerReport, ...], tuple[str, ...]]:
    """Reports of the layers whose values are arrays of numbers, and the other values."""
    reports: list[LayerReport] = []
    left_out: list[str] = []
    errors: dict[str, float] = {}
    for layer in probed.layers:
        got, wanted = found[layer.value], expected[layer.value]
        if not (_is_numbers(got) and _is_numbers(wanted)):
            left_out.append(layer.value)
            continue
        got, wanted = np.asarray(got), np.asarray(wanted)
        difference = difference_of(got, wanted, rtol, atol)
        before = max((errors.get(value, 0.0) for value in layer.inputs), default=0.0)
        growth = difference.relative / before if before else None
        errors[layer.value] = difference.relative
        reports.append(LayerReport(layer, _type(got), difference, growth))
    return tuple(reports), tuple(left_out)


def _outputs(
    probed: Instrumented,
    own: Sequence[object],
    expected: Mapping[str, object],
    rtol: float,
    atol: float | None,
) -> tuple[LayerReport, ...]:
    """Reports of the outputs of the model itself, which are the first of the values."""
    makers = {layer.value: layer for layer in probed.layers}
    reports: list[LayerReport] = []
    for value, got in zip(probed.values, own, strict=False):
        if _is_numbers(got) and _is_numbers(expected[value]):
            layer = makers.get(value, Layer(value, "", value, ()))
            array = np.asarray(got)
            difference = difference_of(array, np.asarray(expected[value]), rtol, atol)
            reports.append(LayerReport(layer, _type(array), difference))
    return tuple(reports)


def difference_of(
    got: np.ndarray, expected: np.ndarray, rtol: float = RTOL, atol: float | None = None
) -> Difference:
    """How far `got` is from `expected`, where NaN is as far as nothing from NaN; infinitely far
    where their shapes differ. `atol` defaults to 1e-4 of the largest finite number expected."""
    if got.shape != expected.shape:
        return Difference(math.inf, math.inf, math.nan, got.size, got.size)
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    a, b = got.astype(kind), expected.astype(kind)
    if not a.size:
        return Difference(0.0, 0.0, 1.0, 0, 0)
    largest = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
        allowed = (ATOL * largest if atol is None else atol) + rtol * np.abs(b)
        out = int(np.sum(~(apart <= np.where(np.isfinite(allowed), allowed, 0.0))))
    most = float(apart.max())
    return Difference(most, most / largest if largest else most, _cosine(a, b), out, a.size)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """That of the angle between two arrays of which only finite numbers count; 1 for zeros."""
    finite = np.isfinite(a) & np.isfinite(b)
    x, y = a[finite], b[finite]
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.vdot(x, y).real) / length if length else float(not (x.any() or y.any()))


def _is_numbers(value: object) -> bool:
    if isinstance(value, list | tuple | dict | str) or value is None:
        return False
    return np.asarray(value).dtype.kind not in "OUS"


def _type(array: np.ndarray) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _kernels(exe: Compiled) -> int | None:
    """How many kernels a model has; None where that is not known before its calls."""
    return len(exe.kernels) if isinstance(exe, Executable) else None
