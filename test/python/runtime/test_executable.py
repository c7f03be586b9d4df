"""Loaded models: calls, names, dtypes, layouts, DLPack, threads, and what is said of bad input."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from handmade import ADD_WEIGHT, COPY, COPY_WEIGHT, WEIGHT, manifest

import stepwell
from stepwell import artifact
from stepwell.artifact import TensorSpec


def batch(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((16, 8), dtype=np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + WEIGHT, 0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_call_and_run(model: Path, threads: int) -> None:
    exe = stepwell.load(model, threads=threads)
    x = batch()
    (y,) = exe(x)
    np.testing.assert_array_equal(y, expected(x))
    np.testing.assert_array_equal(exe.run({"x": x})["y"], expected(x))
    assert exe.inputs == (TensorSpec("x", "float32", (16, 8)),)
    assert str(exe.outputs[0]) == "y: float32[16, 8]"


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux for pages")
def test_all_pages_of_code_are_present_once_loaded(model: Path) -> None:
    def kilobytes(line: str) -> int:
        return int(line.split()[1])

    exe = stepwell.load(model)
    lines = Path("/proc/self/smaps").read_text().splitlines()
    places = [number for number, line in enumerate(lines) if "stepwell-code" in line]
    assert places
    for place in places:
        size, *_, resident = lines[place + 1 : place + 5]
        assert size.startswith("Size:")
        assert resident.startswith("Rss:")
        assert kilobytes(size) == kilobytes(resident), lines[place]
    exe(batch())


def test_outputs_are_fresh(model: Path) -> None:
    exe = stepwell.load(model)
    (first,), (second,) = exe(batch(1)), exe(batch(2))
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, expected(batch(1)))
    np.testing.assert_array_equal(second, expected(batch(2)))


CALLS_OTHER_OBJECT = """
#include "stepwell_runtime.h"
float copy_weight(void *to, const void *from, int index);
void stepwell_main(stepwell_context *context, void *const *inputs, void *const *outputs,
                   const void *weights, void *arena) {
  (void)context, (void)inputs, (void)arena;
  float *y = outputs[0];
  for (int i = 0; i < 16; ++i)
    copy_weight(y + 8 * i, weights, 5);
  y[0] = copy_weight(y + 8, weights, 5);
}
"""


def test_objects_without_a_linker(tmp_path: Path, compile_c: Callable[..., bytes]) -> None:
    path = tmp_path / "model.stepwell"
    one = compile_c(ADD_WEIGHT, shared=False)
    artifact.write(path, manifest(code_format="objects"), [one], [(0, WEIGHT)])
    (y,) = stepwell.load(path, threads=2)(batch())
    np.testing.assert_array_equal(y, expected(batch()))

    two = [compile_c(text, shared=False) for text in (CALLS_OTHER_OBJECT, COPY_WEIGHT)]
    artifact.write(path, manifest(code_format="objects"), two, [(0, WEIGHT)])
    (y,) = stepwell.load(path)(batch())
    assert y[0, 0] == 3.0
    np.testing.assert_array_equal(y[1:], np.tile(WEIGHT, (15, 1)))


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(batch()),
        batch().repeat(2, axis=1)[:, ::2],
        np.frombuffer(b"\0" + batch().tobytes(), np.uint8)[1:].view(np.float32).reshape(16, 8),
        np.broadcast_to(np.float32(0.5), (16, 8)),
        batch().tolist(),
    ],
    ids=["fortran order", "strided", "unaligned and read-only", "broadcast", "nested lists"],
)
def test_any_layout(model: Path, x: np.ndarray) -> None:
    (y,) = stepwell.load(model)(x)
    np.testing.assert_array_equal(y, expected(np.asarray(x, np.float32)))


def test_dlpack_is_not_copied(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)  # pyright: ignore[reportArgumentType]

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    seen = []
    from stepwell.runtime import executable

    monkeypatch.setattr(
        executable, "address", lambda a: seen.append(a.ctypes.data) or a.ctypes.data
    )
    x = batch()
    (y,) = stepwell.load(model)(Foreign(x))
    np.testing.assert_array_equal(y, expected(x))
    assert seen[0] == x.ctypes.data


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("bfloat16", (3,)),
        ("bool", (5,)),
        ("int64", ()),
        ("float16", (2, 0, 3)),
        ("float64", (7, 1)),
    ],
)
def test_dtypes_and_shapes(
    tmp_path: Path, compile_c: Callable[..., bytes], dtype: str, shape: tuple[int, ...]
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    code = compile_c(COPY, f"-DBYTES={x.nbytes}")
    path = tmp_path / "model.stepwell"
    specs = {
        "inputs": (TensorSpec("a", dtype, shape),),
        "outputs": (TensorSpec("b", dtype, shape),),
    }
    artifact.write(path, manifest(weights_bytes=0, **specs), code)
    (y,) = stepwell.load(path)(x)
    assert y.dtype == kind
    assert y.shape == shape
    assert y.tobytes() == x.tobytes()


def test_calls_from_many_threads(model: Path) -> None:
    exe = stepwell.load(model, threads=2)
    wrong = []

    def work(seed: int) -> None:
        x = batch(seed)
        for _ in range(50):
            if not np.array_equal(exe(x)[0], expected(x)):
                wrong.append(seed)

    team = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not wrong


def test_save_and_load(model: Path, tmp_path: Path) -> None:
    exe = stepwell.load(model)
    model.unlink()
    exe.save(tmp_path / "copy.stepwell")
    (y,) = stepwell.load(tmp_path / "copy.stepwell")(batch())
    np.testing.assert_array_equal(y, expected(batch()))


def test_profile_names_kernels(model: Path) -> None:
    ((kernel, nanoseconds),) = stepwell.load(model).profile(batch())
    assert kernel.sources == ("Add_1", "Relu_2")
    assert nanoseconds >= 0


@pytest.mark.parametrize("threads", [1, 3])
def test_trace_tells_threads(model: Path, threads: int) -> None:
    exe = stepwell.load(model, threads=threads)
    trace = exe.trace(batch())
    (run,) = trace.runs
    assert trace.complete
    assert trace.begin <= run.begin <= run.end <= trace.end
    assert bool(run.shares) == (threads > 1)
    assert {share.thread for share in run.shares} <= set(range(threads))
    assert all(run.begin <= share.begin <= share.end <= run.end for share in run.shares)
    np.testing.assert_array_equal(exe(batch())[0], expected(batch()))


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ((), r"the model takes 1 input \(x: float32\[16, 8\]\) and was given 0"),
        ((batch(), batch()), "was given 2"),
        ((batch().astype(np.float64),), "input 'x' has dtype float64 and the model takes float32"),
        ((batch()[0],), r"input 'x' has rank 1 \(shape \(8,\)\) and the model takes rank 2"),
        ((batch()[:3],), r"input 'x' has shape \(3, 8\) and the model was compiled for \(16, 8\)"),
        (("text",), "input 'x' has dtype <U4"),
        ((object(),), "input 'x', a object, cannot be taken as an array"),
        (([[1.0], [2.0, 3.0]],), "input 'x', a list, cannot be taken as an array"),
    ],
)
def test_wrong_inputs(model: Path, arrays: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(stepwell.InputError, match=sentence):
        stepwell.load(model)(*arrays)


@pytest.mark.parametrize(
    ("feed", "sentence"),
    [
        ({"z": batch()}, "the model has no input 'z'; its inputs are: x"),
        ({}, r"the input 'x' was not given; it is float32\[16, 8\]"),
    ],
)
def test_wrong_names(model: Path, feed: dict[str, np.ndarray], sentence: str) -> None:
    with pytest.raises(stepwell.InputError, match=sentence):
        stepwell.load(model).run(feed)


def test_threads_must_be_positive(model: Path) -> None:
    with pytest.raises(stepwell.UsageError, match="threads is 0"):
        stepwell.load(model, threads=0)
