"""Programs with checks in them, as StableHLO's own test suites have: made after each call."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell.errors import CheckError, ModelError


def run(text: str, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of a program."""
    return stepwell.compile(text, threads=1)(*arguments)


def body(lines: str) -> str:
    """A function without arguments and results."""
    return f"func.func @checks() {{\n{lines}\n  func.return\n}}"


MAIN = """module @jit_main attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main() -> (tensor<3xf32> {jax.result_info = ""}) {
    %0 = call @inputs() : () -> tensor<3xf32>
    %1 = call @expected() : () -> tensor<3xf32>
    %2 = stablehlo.abs %0 : tensor<3xf32>
    stablehlo.custom_call @check.NAME(%2, %1) {has_side_effect = true} :
      (tensor<3xf32>, tensor<3xf32>) -> ()
    return %2 : tensor<3xf32>
  }
  func.func private @inputs() -> (tensor<3xf32> {mhlo.layout_mode = "default"}) {
    %c = stablehlo.constant dense<[1.0, -2.0, 0x7FC00000]> : tensor<3xf32>
    return %c : tensor<3xf32>
  }
  func.func private @expected() -> (tensor<3xf32> {mhlo.layout_mode = "default"}) {
    %c = stablehlo.constant dense<[1.0, VALUE, 0x7FC00000]> : tensor<3xf32>
    return %c : tensor<3xf32>
  }
}"""


@pytest.mark.parametrize(
    ("name", "near", "far"),
    [
        ("expect_eq", "2.0", "2.0000003"),
        ("expect_close", "2.0000007", "2.000001"),
        ("expect_almost_eq", "2.0009", "2.0021"),
    ],
)
def test_custom_calls(name: str, near: str, far: str) -> None:
    text = MAIN.replace("NAME", name)
    (result,) = run(text.replace("VALUE", near))
    np.testing.assert_array_equal(result, np.array([1, 2, np.nan], np.float32))
    with pytest.raises(CheckError, match=rf"check.{name}, check 1 of .* 1 of 3 .* at \[1\], is 2"):
        run(text.replace("VALUE", far))


@pytest.mark.parametrize(("kind", "value", "other"), [("f32", "-2.5", "2.5"), ("i8", "-3", "4")])
@pytest.mark.parametrize("same", [True, False])
def test_boolean(kind: str, value: str, other: str, same: bool) -> None:
    text = f"""func.func @main() -> tensor<i1> {{
      %a = stablehlo.constant dense<[1{".0" * (kind == "f32")}, {value}]> : tensor<2x{kind}>
      %b = stablehlo.constant dense<[1{".0" * (kind == "f32")}, {value if same else other}]>
        : tensor<2x{kind}>
      %r = stablehlo.custom_call @check.eq(%a, %b)
        : (tensor<2x{kind}>, tensor<2x{kind}>) -> tensor<i1>
      return %r : tensor<i1>
    }}"""
    assert run(text)[0] == same


def test_boolean_of_complex_numbers() -> None:
    text = """func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<i1> {
      %a = stablehlo.constant dense<[(1.0, 2.0), (0x7FC00000, -1.0)]> : tensor<2xcomplex<f32>>
      %r = stablehlo.custom_call @check.eq(%x, %a)
        : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<i1>
      return %r : tensor<i1>
    }"""
    for imaginary, expected in ((-1.00001, True), (-1.1, False)):
        x = np.array([1 + 2j, complex(np.nan, imaginary)], np.complex64)
        assert run(text, x)[0] == expected


def test_dialect() -> None:
    assert (
        run(
            body("""
  %a = stablehlo.constant dense<[-2, 0, 2]> : tensor<3xi64>
  %b = stablehlo.constant dense<[-2, 0, 2]> : tensor<3xi64>
  check.expect_eq %a, %b : tensor<3xi64>
  check.expect_eq_const %a, dense<[-2,
                                   0, 2]> : tensor<3xi64>
  %f:2 = stablehlo.optimization_barrier %x, %y : tensor<f64>, tensor<f16>
  check.expect_almost_eq_const %f#0, dense<5.00009> : tensor<f64>
  check.expect_almost_eq_const %f#0, dense<5.1> : tensor<f64> {tolerance = 0.1 : f64}
  check.expect_almost_eq%x, %f#0, tolerance = 0.00001 : tensor<f64>
  check.expect_close %y, %z, max_ulp_difference = 3 : tensor<f16>, tensor<f16>
  check.expect_close %y, %z, max_ulp_difference = 5, min_ulp_difference = 2
    : tensor<f16>, tensor<f16>
  %c = stablehlo.constant dense<[(1.5, 2.5)]> : tensor<1xcomplex<f64>>
  check.expect_almost_eq_const %c, dense<[(1.5, 2.5)]> : tensor<1xcomplex<f64>>
  check.expect_eq_const %e, dense<[0.125, 0x7F]> : tensor<2xf8E4M3FN>
  "check.expect_almost_eq_const"(%c) <{value = dense<[(1.5, 2.5)]> : tensor<1xcomplex<f64>>}>
    : (tensor<1xcomplex<f64>>) -> ()
  "check.expect_almost_eq_const"(%x) {tolerance = 0.2 : f64, value = dense<5.1> : tensor<f64>}
    : (tensor<f64>) -> ()""").replace(
                "{\n",
                """{
  %x = stablehlo.constant dense<5.0> : tensor<f64>
  %y = stablehlo.constant dense<5.0> : tensor<f16>
  %z = stablehlo.constant dense<5.01> : tensor<f16>
  %e = stablehlo.constant dense<[0.125, 0x7F]> : tensor<2xf8E4M3FN>
""",
                1,
            )
        )
        == ()
    )


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("expect_eq_const %a, dense<[1, 3]> : tensor<2xi64>", r"at \[1\], is 2 and should be 3"),
        (
            "expect_close %b, %c, max_ulp_difference = 2 : tensor<f32>, tensor<f32>",
            "0 to 2 units in the last place are allowed, it is 4 away",
        ),
        (
            "expect_close %b, %c, min_ulp_difference = 5, max_ulp_difference = 9 : "
            "tensor<f32>, tensor<f32>",
            "5 to 9 units",
        ),
        ("expect_close %b, %n, max_ulp_difference = 2 : tensor<f32>, tensor<f32>", "it is inf"),
    ],
)
def test_failures(check: str, message: str) -> None:
    text = body(f"""
  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %c = stablehlo.constant dense<0x3F800004> : tensor<f32>
  %n = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  check.{check}""")
    with pytest.raises(CheckError, match=message):
        run(text)


def test_zeros_of_both_signs_are_no_units_apart() -> None:
    run(
        body("""
  %a = stablehlo.constant dense<[0.0, -1.0e-45]> : tensor<2xf32>
  %b = stablehlo.constant dense<[-0.0, 1.0e-45]> : tensor<2xf32>
  check.expect_close %a, %b, max_ulp_difference = 2 : tensor<2xf32>, tensor<2xf32>""")
    )


def test_checks_follow_arguments_and_are_kept_in_files(tmp_path) -> None:
    text = """func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
      %y = stablehlo.add %x, %x : tensor<2xi32>
      check.expect_eq_const %y, dense<[2, 4]> : tensor<2xi32>
      return %y : tensor<2xi32>
    }"""
    stepwell.compile(text, threads=1).save(tmp_path / "m.stepwell")
    exe = stepwell.load(tmp_path / "m.stepwell")
    assert [spec.name for spec in exe.outputs] == ["out0"]
    np.testing.assert_array_equal(exe(np.array([1, 2], np.int32))[0], [2, 4])
    with pytest.raises(CheckError):
        exe(np.array([1, 3], np.int32))


def test_checks_of_open_shapes() -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %y = stablehlo.abs %x : tensor<?xf32>
      stablehlo.custom_call @check.expect_eq(%x, %y) {has_side_effect = true} :
        (tensor<?xf32>, tensor<?xf32>) -> ()
      return %y : tensor<?xf32>
    }"""
    exe = stepwell.compile(text, threads=1)
    for n in (3, 5, 4):
        np.testing.assert_array_equal(exe(np.ones(n, np.float32))[0], np.ones(n))
        with pytest.raises(CheckError):
            exe(-np.ones(n, np.float32))


def test_checks_inside_loops_are_refused() -> None:
    text = body("""
  %p = stablehlo.constant dense<true> : tensor<i1>
  "stablehlo.if"(%p) ({
    check.expect_eq_const %p, dense<true> : tensor<i1>
    stablehlo.return
  }, {
    stablehlo.return
  }) : (tensor<i1>) -> ()""")
    with pytest.raises(ModelError, match="inside a loop or a branch"):
        run(text)


def test_artifacts_carry_no_checks(tmp_path) -> None:
    text = body(
        "%a = stablehlo.constant dense<1> : tensor<i8>\ncheck.expect_eq %a, %a : tensor<i8>"
    )
    with pytest.raises(ModelError, match="checks"):
        stepwell.export(text, tmp_path / "m.mlirbc")


PROBES = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.abs %x : tensor<3xf32>
  %1 = interpreter.probe %0, probe_id = "a/b" : tensor<3xf32>
  %2 = interpreter.print %1 : tensor<3xf32>
  %3 = "interpreter.probe"(%2) <{probe_id = "c"}> : (tensor<3xf32>) -> tensor<3xf32>
  check.expect_serialized_eq OPERAND, probe_id = "a/b" : tensor<3xf32>
  return %3 : tensor<3xf32>
}"""


def test_probes_are_passed_by() -> None:
    x = np.array([1, -2, 3], np.float32)
    text = PROBES.replace("OPERAND", "%x")
    np.testing.assert_array_equal(run(text, abs(x))[0], abs(x))
    with pytest.raises(CheckError, match=r"1 of 3 elements; the first, at \[1\], is -2"):
        run(text, x)


def test_probes_in_loops() -> None:
    """Nothing is kept of them."""
    text = """func.func @main(%n: tensor<i32>) -> tensor<i32> {
      %0 = stablehlo.while(%i = %n) : tensor<i32> cond {
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %c = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %twice = stablehlo.add %i, %i : tensor<i32>
        %p = interpreter.probe %twice, probe_id = "twice" : tensor<i32>
        stablehlo.return %p : tensor<i32>
      }
      CHECK
      return %0 : tensor<i32>
    }"""
    assert run(text.replace("CHECK", ""), np.array(3, np.int32))[0] == 12
    check = 'check.expect_serialized_eq %0, probe_id = "twice", iter = 1 : tensor<i32>'
    with pytest.raises(ModelError, match="with a probe twice that is not beside it"):
        run(text.replace("CHECK", check), np.array(3, np.int32))


def test_programs_of_several_devices() -> None:
    text = """func.func private @f() { return }
    func.func @main() { "interpreter.run_parallel"() {programs = [[@f, @f]]} : () -> () return }"""
    with pytest.raises(ModelError, match="run_parallel runs programs on several devices"):
        run(text)
