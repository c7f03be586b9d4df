"""Fixtures with artifacts made by hand."""

from handmade import add_weight_code, compile_c, fake_compiler, model

__all__ = ["add_weight_code", "compile_c", "fake_compiler", "model"]
