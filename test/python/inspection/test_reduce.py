"""`stepwell-reduce`: a small program that fails as a model does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from stepwell import cache, compiler, targets
from stepwell.errors import CompilerCrash, ModelError, UsageError
from stepwell.inspection import reduction_worker
from stepwell.inspection.failures import Failure, pattern
from stepwell.inspection.reduce import reduce
from stepwell.runtime.threads import default_threads
from stepwell.tools import stepwell_reduce as tool
from stepwell.tuning_record import TuningRecord

Capture = pytest.CaptureFixture[str]
Plant = Callable[[str], None]

LAYER = """
  %a{0} = stablehlo.tanh %{1} : tensor<4x8xf32>
  %b{0} = stablehlo.add %a{0}, %x : tensor<4x8xf32>
  %{0} = stablehlo.multiply %b{0}, %w : tensor<4x8xf32>"""

LAYERS = 12

STRANGE = "%s = stablehlo.custom_call @strange(%5) : (tensor<4x8xf32>) -> tensor<4x8xf32>"
COSINE = "%s = stablehlo.cosine %5 : tensor<4x8xf32>"


def network(odd: str) -> str:
    """Layers, after the fifth of which comes an operation `%s`, used by the last."""
    layers = "".join(LAYER.format(n, n - 1 if n else "x") for n in range(LAYERS))
    return f"""func.func @main(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {{{layers}
  {odd}
  %y = stablehlo.subtract %{LAYERS - 1}, %s : tensor<4x8xf32>
  func.return %y, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}}
"""


def record() -> TuningRecord:
    """One for this machine, which chooses nothing."""
    return TuningRecord(targets.get("cpu").name, default_threads())


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Lets the compiler be that of planted.py, which fails with cosines."""
    import planted

    def set_fault(fault: str) -> None:
        monkeypatch.setenv("STEPWELL_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("STEPWELL_TEST_FAULT", fault)
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
        monkeypatch.setattr(compiler, "ENTRY", "planted:compile_to_artifact")
        monkeypatch.setattr(reduction_worker, "run_both", planted.run_both)
        cache.root.cache_clear()

    return set_fault


@pytest.fixture(autouse=True)
def _forget_cache() -> object:
    yield
    cache.root.cache_clear()


def test_unsupported_operation_is_all_that_is_left() -> None:
    found = reduce(network(STRANGE))
    assert (found.kind, found.before, found.after) == ("error", 3 * LAYERS + 2, 1)
    assert "custom_call @strange has no lowering" in found.message
    assert "func.func @main(%arg0: tensor<2x2xf32>) -> tensor<2x2xf32>" in found.program
    again = reduce(found.program)
    assert (again.program, again.before) == (found.program, 1)


@pytest.mark.parametrize("fault", ["crash", "error", "mismatch"])
def test_each_failure_is_found_and_kept(plant: Plant, fault: str) -> None:
    plant(fault)
    found = reduce(network(COSINE))
    assert (found.kind, found.after) == (fault, 1)
    assert "stablehlo.cosine" in found.program


def test_a_tuning_record_is_for_the_code_that_is_looked_at(plant: Plant) -> None:
    """The code of -O0 that results are compared with is of another precision than the record."""
    plant("mismatch")
    found = reduce(network(COSINE), options={"tuning": record()})
    assert (found.kind, found.after) == ("mismatch", 1)


def test_compiling_without_end_is_a_failure(plant: Plant) -> None:
    plant("timeout")
    found = reduce(
        """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.cosine %x : tensor<2xf32>
          %1 = stablehlo.tanh %0 : tensor<2xf32>
          func.return %1 : tensor<2xf32>
        }""",
        timeout=2,
    )
    assert (found.kind, found.after) == ("timeout", 1)
    assert "stablehlo.cosine" in found.program


def test_another_failure_than_the_one_asked_for(plant: Plant) -> None:
    plant("error")
    with pytest.raises(ModelError, match=r"does not fail with a crash \(but there is another"):
        reduce(network(COSINE), failure="crash")


def test_constants_of_a_model_are_kept_where_they_matter(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[4, 8] x) => (float[4, 8] y) {
            h = MatMul (x, v)
            r = Relu (h)
            y = MatMul (r, w)
        }""")
    generator = np.random.default_rng(0)
    for name in "vw":
        array = generator.standard_normal((8, 8), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    found = reduce(path, test="grep -q dialect_resources")
    assert (found.kind, found.after) == ("test", 1)
    assert found.program.count("dense_resource<") == 1
    assert reduce(path, test="grep -q stablehlo.maximum").after == 1


def test_folder_of_a_crash_is_a_model(plant: Plant, tmp_path: Path) -> None:
    plant("crash")
    with pytest.raises(CompilerCrash, match="stepwell-reduce"):
        compiler.build(network(COSINE), options={"opt_level": 2, "tuning": record()})
    (folder,) = (cache.root() / "crashes").iterdir()
    output = tmp_path / "small.mlir"
    assert tool.main([str(folder), "-o", str(output)]) == 0
    assert output.read_text().count("stablehlo.") == 1
    assert len(list((cache.root() / "crashes").iterdir())) == 1


def test_json_says_what_was_done(tmp_path: Path, capsys: Capture) -> None:
    model, output = tmp_path / "model.mlir", tmp_path / "small.mlir"
    model.write_text(network(STRANGE))
    assert tool.main([str(model), "-o", str(output), "--json", "--failure", "error"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["before"], said["after"]) == ("error", 3 * LAYERS + 2, 1)
    assert sum(step["candidates"] for step in said["steps"]) == said["candidates"]
    assert "strange" in output.read_text()


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_a_signal_leaves_the_smallest_program_so_far(
    name: str, status: int, tmp_path: Path
) -> None:
    """The third program with a cosine is never done with; by then there is a smaller one."""
    model, output, seen = (tmp_path / name for name in ("model.mlir", "small.mlir", "seen"))
    test = tmp_path / "test.sh"
    test.write_text(
        f"#!/bin/sh\ngrep -q cosine $1 || exit 1\necho >> {seen}\n"
        f'test "$(wc -l < {seen})" -lt 3 && exit 0\nkill -{name} $PPID\nexec sleep 60\n'
    )
    test.chmod(0o755)
    model.write_text(network(COSINE))
    command = [sys.executable, "-m", "stepwell.tools.stepwell_reduce", str(model)]
    ended = subprocess.run([*command, "-o", str(output), "--test", str(test)], timeout=120)
    assert ended.returncode == status
    text = output.read_text()
    assert "stablehlo.cosine" in text
    assert text.count("stablehlo.") < network(COSINE).count("stablehlo.")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.mlir",
        "seen",
        "small.mlir",
        "test.sh",
    ]
    assert reduce(text, test="grep -q cosine").before < 3 * LAYERS + 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"failure": "fire"}, "there is no failure fire; there are: crash, error, mismatch"),
        ({"failure": "error", "test": "true"}, "a test command says what a failure is"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"test": " "}, "the test command is empty"),
        ({"failure": "mismatch", "target": "cuda:sm_90a"}, "GPUs are not compared"),
    ],
)
def test_arguments_without_sense(arguments: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        reduce(network(COSINE), **arguments)


def test_what_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text("no model")
    with pytest.raises(ModelError, match=r"does not become StableHLO: .*model.mlir is not"):
        reduce(file)
    with pytest.raises(ModelError, match="is a folder, but not one of a crash"):
        reduce(tmp_path)
    with pytest.raises(ModelError, match="does not fail; nothing to reduce"):
        reduce(network(COSINE))


def test_failures_are_the_same_but_for_names_and_numbers() -> None:
    said = "n3 (Conv): error: the pads [1, 2] of 'n3' are 3 in tensor<1x(2)x3xf32>"
    assert pattern(said) == pattern("a/b: error: the pads [4] of 'x' are 12 in tensor<?xi8>")
    assert pattern(said) != pattern(said.replace("pads", "strides"))
    mlir = 'Failure:\nerror: "-":3:5: \'linalg.dot\' op is odd\n note: "-":3:5: see it'
    assert pattern(mlir) == pattern(mlir.replace(":3:5", ":9:1"))
    crash = Failure("crash", "fold", "..", frozenset(["was ended by SIGABRT"]))
    assert crash.is_like(Failure("crash", "fold", "--", frozenset(["was ended by SIGABRT"])))
    assert not crash.is_like(Failure("crash", "link", "..", frozenset(["was ended by SIGABRT"])))
    assert not crash.is_like(Failure("crash", "fold", "..", frozenset(["was ended by SIGSEGV"])))
