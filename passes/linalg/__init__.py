"""Passes of the linalg level."""
