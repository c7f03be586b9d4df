"""Benchmarks: whole models beside other systems, and single kernels against the machine's peak."""
