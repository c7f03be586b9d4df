"""Dialect builders, one file a dialect."""
