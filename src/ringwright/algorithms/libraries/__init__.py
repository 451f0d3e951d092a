"""Whole libraries: they choose by their own rules and delegate to the building blocks."""
