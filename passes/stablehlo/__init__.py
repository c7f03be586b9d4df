"""Passes of the stablehlo level."""
