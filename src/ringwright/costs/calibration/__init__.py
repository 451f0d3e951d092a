"""Measured link numbers of a system: three per link class, fitted from nccl-tests tables, kept with where they come from.

``calibration = load("polaris-ofi")`` or ``load("mine.json")``; ``calibrated(topology, calibration)`` puts the numbers into a
Topology; ``predict_s(calibration, ...)`` gives the closed form of ``costs.nccl.timing``. What NCCL does (algorithm,
protocol, channels, chunks) is computed from its release and never fitted.
"""

from __future__ import annotations

from ringwright.costs.calibration.apply import calibrated
from ringwright.costs.calibration.fit import fit, ratio_error, times_s
from ringwright.costs.calibration.record import SCHEMA, Calibration, LinkClassCosts, MeasuredTimes, load, names, save

__all__ = [
    "SCHEMA",
    "Calibration",
    "LinkClassCosts",
    "MeasuredTimes",
    "calibrated",
    "fit",
    "load",
    "names",
    "ratio_error",
    "save",
    "times_s",
]
