"""Programs on real ranks beside the native libraries and the simulator: one question, one table."""

from __future__ import annotations

from ringwright.studies.bench.calibrated import calibration_of
from ringwright.studies.bench.question import BenchSpec
from ringwright.studies.bench.study import SCHEMA, bench

__all__ = ["SCHEMA", "BenchSpec", "bench", "calibration_of"]
