"""Sweeps: a grid of recorded runs of real models, each kept with its whole configuration, joined in one table."""

from ringwright.studies.sweep.grid import Grid, read_grid
from ringwright.studies.sweep.run import sweep

__all__ = ["Grid", "read_grid", "sweep"]
