"""Passes of the affine level."""
