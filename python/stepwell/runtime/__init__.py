"""Loads and runs artifacts; imports no MLIR."""
