"""Frontends: ONNX, JAX and StableHLO files all end in StableHLO."""
