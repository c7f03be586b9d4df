"""What the results of `run` say: ratios to the best peer, and the project's figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from benchmarks.measure import Report

OWN = "stepwell"

GOAL_MODELS = (
    "resnet50_b1",
    "mobilenetv2_b1",
    "light_squeezenet",
    "light_densenet121",
    "light_inception_v1",
    "light_resnet50",
    "unet_256_b1",
    "bert_base_s128",
    "minilm6_s128",
    "gpt2_prefill_s128",
    "gpt2_decode_p128",
)
"""The models that the project's figures are about."""

LARGEST_ERROR = 2e-5
_WRONG = {"f32": 1e-3, "bf16": 0.2}
"""A result with a relative error beyond this is wrong, and its time says nothing. Weights are
random: deep networks of them make much of what is rounded."""

_MEAN_RATIO = 0.85
_LEAST_RATIO = 0.6
_RATIOS = {
    "resnet50_b1": 1.3,
    "resnet50_b8": 1.3,
    "unet_256_b1": 1.7,
    "mobilenetv2_b1": 1.15,
    "light_squeezenet": 1.1,
    "light_densenet121": 1.1,
    "light_inception_v1": 1.1,
    "light_zfnet512": 1.1,
    "jax_mlp": 1.15,
    "jax_block_s128": 1.15,
    "jax_resnet50_nhwc": 2.0,
    "jax_lstm_scan": 1.3,
    "jax_while_256": 1.2,
}
"""Of single models, with one thread."""

SAME_NETWORK = ("resnet50_b1", "jax_resnet50_nhwc")
"""One network from ONNX and from JAX, timed in turns."""

_JAX_OVER_ONNX = 1.05
"""How much longer the same network may take that comes from JAX."""

_TWO_THREADS = 1.9
_WARM_S = 1.5
_COLD_S = {"resnet50_b1": 12.0, "bert_base_s128": 20.0}
_MEMORY_BYTES = 1e9
_ARTIFACT_BYTES = 1e6


@dataclass(frozen=True)
class Results:
    """A results file. `models` maps name -> threads ("1") -> peer -> report."""

    data: dict[str, object]

    @property
    def models(self) -> dict[str, dict[str, dict[str, Report]]]:
        return cast("dict[str, dict[str, dict[str, Report]]]", self.data["models"])

    @property
    def same_network(self) -> dict[str, Report]:
        """Reports on `SAME_NETWORK`; none where it was not measured."""
        return cast("dict[str, Report]", self.data.get("same_network", {}))

    @property
    def facts(self) -> dict[str, dict[str, float]]:
        """GFLOP and weights_bytes of each model."""
        return cast("dict[str, dict[str, float]]", self.data["facts"])

    @property
    def machine(self) -> dict[str, object]:
        return cast("dict[str, object]", self.data["machine"])

    @property
    def versions(self) -> dict[str, str]:
        return cast("dict[str, str]", self.data["versions"])

    @property
    def precision(self) -> str:
        """Of products of float32."""
        return str(self.data.get("precision", "f32"))

    def threads(self) -> list[int]:
        return sorted({int(count) for runs in self.models.values() for count in runs})

    def peers(self) -> list[str]:
        """All contenders in the order of their first appearance."""
        names: dict[str, None] = {}
        for runs in self.models.values():
            for reports in runs.values():
                names |= dict.fromkeys(reports)
        return list(names)

    def report(self, model: str, threads: int, peer: str) -> Report:
        return self.models.get(model, {}).get(str(threads), {}).get(peer, {})

    def number(self, model: str, threads: int, peer: str, key: str) -> float | None:
        """One figure of a contender that ran, or None."""
        report = self.report(model, threads, peer)
        value = report.get(key) if report.get("ok") else None
        return float(value) if isinstance(value, (int, float)) else None

    def time_ms(self, model: str, threads: int, peer: str) -> float | None:
        """The median time of a call: CPU time with one thread, which other work on the machine
        disturbs little, wall time with more."""
        return self.number(model, threads, peer, "cpu_ms" if threads == 1 else "wall_ms")

    def best_peer(self, model: str, threads: int) -> tuple[str, float] | None:
        """The fastest contender beside Stepwell with a right result, and its milliseconds."""
        times = []
        for peer in self.peers():
            time = self.time_ms(model, threads, peer)
            if peer != OWN and time is not None and self._is_right(model, threads, peer):
                times.append((time, peer))
        if not times:
            return None
        time, peer = min(times)
        return peer, time

    def ratio(self, model: str, threads: int) -> float | None:
        """Time of the best peer over Stepwell's: above 1, Stepwell is the fastest."""
        own, best = self.time_ms(model, threads, OWN), self.best_peer(model, threads)
        if own is None or best is None or not self._is_right(model, threads, OWN):
            return None
        return best[1] / own

    def _is_right(self, model: str, threads: int, peer: str) -> bool:
        error = self.number(model, threads, peer, "relative_error")
        return error is not None and error < _WRONG[self.precision]

    def ratios(self, threads: int, models: Iterable[str]) -> dict[str, float]:
        """`ratio` of each model that has one."""
        found = {model: self.ratio(model, threads) for model in models}
        return {model: ratio for model, ratio in found.items() if ratio is not None}


@dataclass(frozen=True)
class Figure:
    """One figure to reach; `passed` is None where it was not measured."""

    name: str
    wanted: str
    measured: str
    passed: bool | None


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean. Raises ZeroDivisionError for no values."""
    return math.exp(sum(map(math.log, values)) / len(values))


def figures(results: Results) -> list[Figure]:
    """The project's figures for correctness, speed, compile time, memory and size."""
    return [
        _largest_error(results),
        *_speed(results),
        *_single_speeds(results),
        *(_scaling(results, model) for model in _COLD_S),
        *(_seconds(results, model, "first_result_s", cold) for model, cold in _COLD_S.items()),
        *(_seconds(results, model, "first_result_warm_s", _WARM_S) for model in _COLD_S),
        _excess(results, "compiler_rss_bytes", "peak memory of the compiler", _MEMORY_BYTES),
        _excess(results, "artifact_bytes", "artifact", _ARTIFACT_BYTES),
    ]


def _figure(name: str, wanted: str, value: float | None, text: str, passed: bool) -> Figure:
    if value is None:
        return Figure(name, wanted, "-", None)
    return Figure(name, wanted, text, passed)


def _unless_partial(figure: Figure, measured: int) -> Figure:
    """A figure over all goal models is not passed by some of them (but missed it may be)."""
    if measured == len(GOAL_MODELS) or not figure.passed:
        return figure
    text = f"{figure.measured}, {measured} of {len(GOAL_MODELS)} models"
    return dataclasses.replace(figure, measured=text, passed=None)


def _worst(
    results: Results, value: Callable[[str], float | None]
) -> tuple[str, float] | tuple[None, None]:
    """The goal model with the largest value."""
    found = [(v, m) for m in GOAL_MODELS if (v := value(m)) is not None]
    if not found:
        return None, None
    largest, model = max(found)
    return model, largest


def _count(results: Results, threads: int, key: str) -> int:
    return sum(results.number(m, threads, OWN, key) is not None for m in GOAL_MODELS)


def _first_threads(results: Results) -> int:
    return results.threads()[0]


def _largest_error(results: Results) -> Figure:
    threads = _first_threads(results)
    model, error = _worst(results, lambda m: results.number(m, threads, OWN, "relative_error"))
    failed = [m for m in GOAL_MODELS if results.report(m, threads, OWN).get("ok") is False]
    name, wanted = "largest relative L2 error", f"below {LARGEST_ERROR:.0e}"
    if failed:
        return Figure(name, wanted, f"failed: {', '.join(failed)}", False)
    text = f"{error or 0:.1e} ({model})"
    figure = _figure(name, wanted, error, text, error is not None and error < LARGEST_ERROR)
    return _unless_partial(figure, _count(results, threads, "relative_error"))


def _speed(results: Results) -> list[Figure]:
    ratios = results.ratios(1, GOAL_MODELS)
    if not ratios:
        return [Figure("best peer's time / ours, one thread", f">= {_MEAN_RATIO}", "-", None)]
    mean = geometric_mean(list(ratios.values()))
    least = min(ratios, key=lambda model: ratios[model])
    over_all = [
        Figure(
            "best peer's time / ours, one thread, geometric mean",
            f">= {_MEAN_RATIO}",
            f"{mean:.2f}",
            mean >= _MEAN_RATIO,
        ),
        Figure(
            "the least of them",
            f">= {_LEAST_RATIO}",
            f"{ratios[least]:.2f} ({least})",
            ratios[least] >= _LEAST_RATIO,
        ),
    ]
    return [_unless_partial(figure, len(ratios)) for figure in over_all]


def _single_speeds(results: Results) -> list[Figure]:
    ratios = results.ratios(1, _RATIOS)
    figures = [
        _figure(
            f"best peer's time / ours, {model}",
            f">= {wanted}",
            ratios.get(model),
            f"{ratios.get(model, 0):.2f}",
            ratios.get(model, 0) >= wanted,
        )
        for model, wanted in _RATIOS.items()
    ]
    onnx, jax = (results.same_network.get(m, {}).get("cpu_ms") for m in SAME_NETWORK)
    longer = jax / onnx if isinstance(jax, float) and isinstance(onnx, float) else None
    return [
        *figures,
        _figure(
            "ResNet-50 from JAX over that from ONNX",
            f"<= {_JAX_OVER_ONNX}",
            longer,
            f"{longer or 0:.2f}",
            (longer or 0) <= _JAX_OVER_ONNX,
        ),
    ]


def _scaling(results: Results, model: str) -> Figure:
    one = results.number(model, 1, OWN, "wall_ms")
    two = results.number(model, 2, OWN, "wall_ms")
    gain = one / two if one is not None and two is not None else None
    name = f"two threads over one, {model}"
    return _figure(
        name, f">= {_TWO_THREADS}", gain, f"{gain or 0:.2f}", (gain or 0) >= _TWO_THREADS
    )


def _seconds(results: Results, model: str, key: str, limit: float) -> Figure:
    seconds = results.number(model, _first_threads(results), OWN, key)
    state = "warm" if "warm" in key else "cold"
    name = f"compile to first result, {state}, {model}"
    text = f"{seconds or 0:.1f} s"
    return _figure(name, f"< {limit:g} s", seconds, text, seconds is not None and seconds < limit)


def _excess(results: Results, key: str, name: str, limit: float) -> Figure:
    """The largest number of bytes beyond the weights."""
    threads = _first_threads(results)

    def excess(model: str) -> float | None:
        value = results.number(model, threads, OWN, key)
        return None if value is None else value - results.facts[model]["weights_bytes"]

    model, value = _worst(results, excess)
    text = f"weights {(value or 0) / 1e6:+.1f} MB ({model})"
    passed = value is not None and value <= limit
    figure = _figure(f"{name}, largest", f"weights +{limit / 1e6:.0f} MB", value, text, passed)
    return _unless_partial(figure, _count(results, threads, key))
