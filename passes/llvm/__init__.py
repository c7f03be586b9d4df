"""Passes of the llvm level."""
