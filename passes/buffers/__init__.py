"""Passes of the buffers level."""
