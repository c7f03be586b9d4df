"""Tuples in signatures, and modules and files that do not say which function is the model."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

T, PAIR = "tensor<4xf32>", "tuple<tensor<4xf32>, tensor<2xi32>>"


def test_tuples_become_their_elements() -> None:
    """In their order, from within other tuples and beside tensors."""
    nested = f"tuple<{PAIR}, {T}>"
    exe = stepwell.compile(
        f"""func.func @main(%a: {PAIR}, %b: {T}) -> ({PAIR}, {T}) {{
          %0 = stablehlo.get_tuple_element %a[0] : ({PAIR}) -> {T}
          %1 = stablehlo.get_tuple_element %a[1] : ({PAIR}) -> tensor<2xi32>
          %2 = stablehlo.add %0, %b : {T}
          %3 = stablehlo.tuple %2, %1 : {PAIR}
          %4 = stablehlo.tuple %3, %0 : {nested}
          %5 = stablehlo.get_tuple_element %4[0] : ({nested}) -> {PAIR}
          return %5, %b : {PAIR}, {T}
        }}"""
    )
    x, n, y = np.ones(4, np.float32), np.array([3, 4], np.int32), np.full(4, 2, np.float32)
    assert [spec.name for spec in exe.inputs] == ["arg0", "arg1", "arg2"]
    total, number, same = exe(x, n, y)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(number, n)
    np.testing.assert_array_equal(same, y)


def test_a_tuple_that_is_only_passed_on() -> None:
    exe = stepwell.compile(f"func.func @main(%a: {PAIR}) -> {PAIR} {{ return %a : {PAIR} }}")
    x, n = np.arange(4, dtype=np.float32), np.array([3, 4], np.int32)
    for got, want in zip(exe(x, n), (x, n), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_tuple_in_a_tuple_as_an_argument_is_refused() -> None:
    kind = f"tuple<{PAIR}>"
    with pytest.raises(stepwell.Error, match="tuples in tuples are not supported"):
        stepwell.compile(f"func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}")


FUNCTION = f"(%a: {T}) -> {T} {{ return %a : {T} }}"


def test_the_only_public_function_is_the_model() -> None:
    exe = stepwell.compile(f"func.func public @f{FUNCTION} func.func private @g{FUNCTION}")
    np.testing.assert_array_equal(exe(np.ones(4, np.float32))[0], np.ones(4))


def test_several_public_functions_are_named() -> None:
    with pytest.raises(stepwell.Error, match=r"public functions: f, g\); call the one to compile"):
        stepwell.compile(f"func.func @f{FUNCTION} func.func @g{FUNCTION}")


def test_several_programs_are_refused() -> None:
    program = f"func.func @main{FUNCTION}"
    with pytest.raises(stepwell.Error, match="several programs"):
        stepwell.compile(f"{program}\n// -----\n{program}")
