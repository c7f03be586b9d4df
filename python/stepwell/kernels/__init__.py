"""Emitters of fast loop nests."""
