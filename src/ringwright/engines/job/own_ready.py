"""When each rank was ready for an operation: when all that it waited for itself had ended. It starts when the last one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.engines.job.run import JobRun
    from ringwright.engines.job.step import Instances

EVERY_CLASS = -1  # of an instance in which several classes of ranks take part
MOST_CELLS = (
    20_000_000  # of control instances by class of ranks; beyond it what passes through control is not told apart
)


class OwnReady:
    """The operations of a run, asked by row, step and class of ranks.

    Control takes no time and passes on what each class of its own has done: that an operation is posted behind another one does
    not make a rank late for it.
    """

    def __init__(self, run: JobRun) -> None:
        self.run, bands = run, run.laid.bands
        self.width = len(run.laid.rank_classes) + 1
        src, dst = run.laid.flat.edges()
        is_told = (dst < len(run.times.end)) & (src < len(run.times.end))
        src, dst = src[is_told], dst[is_told]
        per_band = [each.rank_classes[0] if len(set(each.rank_classes)) == 1 else EVERY_CLASS for each in bands]
        self.of = np.array(per_band, np.int64)[run.laid.of]
        is_control = np.array([each.kind == "CTRL" for each in bands], bool)[run.laid.of]
        many = int(is_control.sum()) * run.laid.steps
        control = is_control if many * self.width <= MOST_CELLS else np.zeros_like(is_control)
        before, after = control[src % run.laid.per_step], control[dst % run.laid.per_step]
        keys, ends = self._direct(src[~before & ~after], dst[~before & ~after])
        if before.any():
            passed = self._passed(src, dst, before, after)
            more, later = self._through(src[before & ~after], dst[before & ~after], passed)
            keys, ends = np.concatenate((keys, more)), np.concatenate((ends, later))
        order = np.argsort(keys, kind="stable")
        self.keys, first = np.unique(keys[order], return_index=True)
        self.ends = np.maximum.reduceat(ends[order], first) if len(first) else np.zeros(0, np.int64)

    def _direct(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return of edges the waiting instance with the class that is waited for, as one number, and when that has ended."""
        return dst * self.width + self.of[src % self.run.laid.per_step] + 1, self.run.times.end[src]

    def _passed(self, src: np.ndarray, dst: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict[int, np.ndarray]:
        """Return by control instance when each class, behind the first that is of all, had done what it waits for; else -1."""
        passed: dict[int, np.ndarray] = {}
        into = ~before & after
        for key, end in zip(*(each.tolist() for each in self._direct(src[into], dst[into])), strict=True):
            control, of = divmod(key, self.width)
            if control not in passed:
                passed[control] = np.full(self.width, -1, np.int64)
            passed[control][of] = max(passed[control][of], end)
        chained = np.flatnonzero(before & after)
        chained = chained[np.lexsort((dst[chained], self.run.times.end[dst[chained]]))]
        for one, other in zip(src[chained].tolist(), dst[chained].tolist(), strict=True):
            if one in passed:
                here = passed.get(other)
                passed[other] = passed[one].copy() if here is None else np.maximum(here, passed[one])
        return passed

    def _through(
        self, src: np.ndarray, dst: np.ndarray, passed: dict[int, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the same of edges from control: of each class that it passes on."""
        known = [
            (control, instance)
            for control, instance in zip(src.tolist(), dst.tolist(), strict=True)
            if control in passed
        ]
        if not known:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ends = np.stack([passed[control] for control, _ in known])
        keys = np.array([instance for _, instance in known], np.int64)[:, None] * self.width + np.arange(self.width)
        return keys[ends >= 0], ends[ends >= 0]

    def ready(self, row: Instances, step: int, rank_class: int) -> np.ndarray:
        """Return when a class was ready for the instances of a row, in ps, int64 of shape (instances,).

        Where nothing of its own is waited for, as of a rank that only receives, it is when all were.
        """
        where = self.run.span(row, step)
        instances = np.arange(where.start, where.stop)
        latest = np.maximum(self._latest(instances, rank_class), self._latest(instances, EVERY_CLASS))
        all_ready = self.run.times.ready[where]
        return np.where(latest < 0, all_ready, np.minimum(latest, all_ready))

    def _latest(self, instances: np.ndarray, rank_class: int) -> np.ndarray:
        """Return the last end of what instances waited for of a class; -1 where that is nothing."""
        if not len(self.keys):
            return np.full(len(instances), -1, np.int64)
        wanted = instances * self.width + rank_class + 1
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.ends[at], -1)
