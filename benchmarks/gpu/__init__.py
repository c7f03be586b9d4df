"""Benchmarks on GPUs: artifacts are built where there is a compiler, and timed where a GPU is."""
