"""The fit: six numbers at the most, that make the closed form agree with measured times.

Minimised is the mean of |log(t_sim/t)|, that is the geometric mean of max(t_sim/t, t/t_sim); one size counts at the most
as a factor of 4.5, so that a few odd sizes do not pull; sizes below 64 KiB count a tenth. Numbers that the sizes do not
determine stay near the node's data sheet and NCCL's own latencies (0.3 % per factor e). A grid of starts, then a
pattern search over single numbers and pairs; no random numbers, so equal tables give equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ringwright.costs.calibration.record import Calibration, LinkClassCosts, MeasuredTimes
from ringwright.costs.calibration.search import descend
from ringwright.costs.nccl.node_types import NodeType, placed
from ringwright.costs.nccl.timing import COLUMNS, stages
from ringwright.costs.transports import OF_PRODUCTS, carrier
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

LARGE_BYTES = 64 << 10
_SMALL_WEIGHT = 0.1
_LARGEST_LOG = 1.5
_PULL = 0.003
_LOW = (2e-7, 1e-8, 1e10, 1e-6, 1e-8, 5e8)  # s, s, B/s inside, the same outside
_HIGH_S = (5e-5, 1e-4, 2e-3, 2e-4)
_SHEET = 1.25  # NVLink's data sheet over what the topology search counts


@dataclass(frozen=True)
class _Design:
    """Coefficients of all sizes of some measurements: serial (n, 7), parallel (n, stages, 7), times and weights (n)."""

    serial: np.ndarray
    parallel: np.ndarray
    times_s: np.ndarray
    weights: np.ndarray

    def predicted_s(self, machines: np.ndarray) -> np.ndarray:
        """Return seconds (n, candidates)."""
        seconds: np.ndarray = self.serial @ machines.T + (self.parallel @ machines.T).max(axis=1)
        return seconds


def times_s(calibration: Calibration, measured: MeasuredTimes) -> np.ndarray:
    """Return the closed form's seconds for the sizes of a measurement (its times are not looked at).

    float64 of shape (sizes,).
    """
    import numpy as np

    links = (calibration.inside, calibration.outside)
    numbers = [(link.latency_s, link.message_s, link.rate_bytes_per_s) if link else (0.0, 0.0, 1e18) for link in links]
    machine = _machines(np.log(np.maximum(np.array([numbers[0] + numbers[1]]), 1e-18)))
    return _design([measured], calibration.carrier).predicted_s(machine)[:, 0]


def ratio_error(predicted_s: np.ndarray | Sequence[float], measured_s: np.ndarray | Sequence[float]) -> float:
    """Return the geometric mean of max(t_sim/t, t/t_sim) less one."""
    import numpy as np

    return float(np.exp(np.abs(np.log(np.asarray(predicted_s) / np.asarray(measured_s))).mean()) - 1)


def fit(
    measured: Sequence[MeasuredTimes], *, name: str = "", source: str = "", date: str = "", transport: str = ""
) -> Calibration:
    """Return the calibration of some measurements of one type of node; UsageError where there is nothing to fit.

    ``transport`` joins the nodes; empty: what the product comes with.
    """
    import numpy as np

    if not measured or not any(part.sizes_bytes for part in measured):
        raise UsageError("there is no measured size to fit", remedy="give a table with a row of numbers")
    kind, _ = placed(measured[0].fabric)
    over = carrier(transport, OF_PRODUCTS.get(kind.name, ""))
    design = _design(measured, over)
    nodes = max(placed(part.fabric)[1].nodes for part in measured)
    best = _search(design, np.log(np.array(_expected(kind))), np.log(np.array(_most(kind))))
    ratios = np.abs(np.log(design.predicted_s(_machines(best[None]))[:, 0] / design.times_s))
    judged = ratios[design.weights == 1] if (design.weights == 1).any() else ratios
    numbers = [float(f"{number:.4g}") for number in np.exp(best)]
    gpus = placed(measured[0].fabric)[1].ranks // placed(measured[0].fabric)[1].nodes
    sizes = sorted({size for part in measured for size in part.sizes_bytes})
    return Calibration(
        name=name,
        fabric=measured[0].fabric,
        release=measured[0].release,
        inside=LinkClassCosts(*numbers[:3]) if gpus > 1 else None,
        outside=LinkClassCosts(*numbers[3:]) if nodes > 1 else None,
        source=source,
        date=date,
        transport=transport,
        operations=tuple(dict.fromkeys(part.op for part in measured)),
        sizes_bytes=tuple(sizes),
        error=round(float(np.exp(judged.mean()) - 1), 5),
        error_p90=round(float(np.exp(np.quantile(judged, 0.9)) - 1), 5),
        tables=tuple(measured),
    )


def _expected(kind: NodeType) -> tuple[float, ...]:
    """Return what a data sheet would let one expect."""
    nics = kind.nics * kind.nic_gbs * 1e9
    return (1e-6, 1e-7, max(kind.gpu_gbs, 20.0) * 1e9, 5e-6, 1e-6, nics)


def _most(kind: NodeType) -> tuple[float, ...]:
    """Return the largest numbers allowed: no rate beyond the data sheet."""
    _, _, inside, _, _, outside = _expected(kind)
    return (*_HIGH_S[:2], inside * _SHEET, *_HIGH_S[2:], outside)


def _design(measured: Sequence[MeasuredTimes], over: str) -> _Design:
    import numpy as np

    serial, parallel, seconds, weights = [], [], [], []
    for part in measured:
        kind, system = placed(part.fabric)
        for size, time_s in zip(part.sizes_bytes, part.times_s, strict=True):
            stage_terms = stages(part.op, size, kind, system, part.release, part.forced, over)
            serial.append(stage_terms.serial)
            parallel.append(stage_terms.parallel)
            seconds.append(time_s)
            weights.append(1.0 if size >= LARGE_BYTES else _SMALL_WEIGHT)
    most = max(map(len, parallel))
    filled = [(*rows, *[(0.0,) * len(COLUMNS)] * (most - len(rows))) for rows in parallel]
    return _Design(np.array(serial), np.array(filled), np.array(seconds), np.array(weights))


def _machines(logs: np.ndarray) -> np.ndarray:
    """Return the numbers as the columns want them: rates as seconds per byte, a one first."""
    import numpy as np

    numbers = np.exp(logs)
    numbers[:, [2, 5]] = 1 / numbers[:, [2, 5]]
    machines: np.ndarray = np.concatenate((np.ones((len(numbers), 1)), numbers), axis=1)
    return machines


def _search(design: _Design, expected: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the logs of the six numbers with the least loss: the best six starts, each followed downhill."""
    import numpy as np

    low = np.log(np.array(_LOW))
    logs = np.log(design.times_s)[:, None]
    share = design.weights / design.weights.sum()

    def loss(candidates: np.ndarray) -> np.ndarray:
        off = np.abs(np.log(design.predicted_s(_machines(candidates))) - logs)
        total: np.ndarray = share @ np.minimum(off, _LARGEST_LOG) + _PULL * np.abs(candidates - expected).sum(axis=1)
        return total

    scales = product((1.0, 4.0), (0.3, 1.0), (1.0, 4.0, 20.0), (0.15, 0.7), (0.3, 6.0))
    starts = np.array([(a, 1.0, b, c, e, d) for a, b, c, d, e in scales])
    starts = np.clip(expected + np.log(starts), low, high)
    best = np.argsort(loss(starts), kind="stable")[:6]
    ends = [descend(loss, starts[start], low, high) for start in best]
    return min(ends, key=lambda end: float(loss(end[None])[0]))
