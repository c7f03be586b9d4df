"""CPU kernels: one file a kernel family."""
