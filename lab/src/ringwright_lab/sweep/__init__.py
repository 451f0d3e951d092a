"""Sweeps: a grid of recorded runs of real models, each kept with its whole configuration, joined in one table."""

from ringwright_lab.sweep.grid import Grid, read_grid
from ringwright_lab.sweep.run import sweep

__all__ = ["Grid", "read_grid", "sweep"]
