"""Stepwell: a machine-learning compiler on MLIR."""
