"""Passes of the nvvm level: kernels for NVIDIA GPUs."""
