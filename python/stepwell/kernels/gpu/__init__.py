"""Kernel emitters for GPUs, one file a family."""
