"""Programs on real ranks beside the native libraries and the simulator: one question, one table."""

from __future__ import annotations

from ringwright_lab.bench.message_costs import calibration_of
from ringwright_lab.bench.question import BenchSpec
from ringwright_lab.bench.study import SCHEMA, bench

__all__ = ["SCHEMA", "BenchSpec", "bench", "calibration_of"]
