"""Whole libraries: they choose among the blocks by their own rules."""
