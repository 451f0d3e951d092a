"""Measured link numbers of a system: three per link class, fitted from nccl-tests tables, kept with where they come from.

``calibration = load("p5")`` or ``load("mine.json")``; ``calibrated(topology, calibration)`` puts the numbers into a Topology,
``link_numbers(topology)`` reads them from it; ``times_s(calibration, table)`` gives the closed form of ``costs.nccl.timing``
for the sizes of a table. What NCCL does (algorithm,
protocol, channels, chunks) is computed from its release and never fitted.
"""

from __future__ import annotations

from ringwright.costs.calibration.apply import calibrated, link_numbers
from ringwright.costs.calibration.fit import fit, ratio_error, times_s
from ringwright.costs.calibration.record import (
    SCHEMA,
    Calibration,
    LinkClassCosts,
    MeasuredTimes,
    document_of,
    load,
    names,
    of_document,
    save,
)

__all__ = [
    "SCHEMA",
    "Calibration",
    "LinkClassCosts",
    "MeasuredTimes",
    "calibrated",
    "document_of",
    "fit",
    "link_numbers",
    "load",
    "names",
    "of_document",
    "ratio_error",
    "save",
    "times_s",
]
