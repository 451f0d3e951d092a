"""How long tests wait. No test asks how quick this machine is: it may be doing four other things."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Self

HANG_S = 900.0  # for what must come on any machine, however busy: only what hangs takes this long
"""Seconds after which a process, a message or a file that a test waits for counts as never coming."""


class Others:
    """How much of the machine's processor time other processes took while the block ran; ``share`` stands behind it.

    What takes a known time on a free machine can be held to that from above only where nobody else was at work.
    """

    BUSY = 0.15
    """The share from which a time says something of the machine and not of what ran."""

    def __enter__(self) -> Self:
        self.share = 0.0
        self._began = self._used()
        return self

    def __exit__(self, *_: object) -> None:
        whole, busy, own = (after - before for after, before in zip(self._used(), self._began, strict=True))
        self.share = max(busy - own, 0.0) / whole if whole > 0 else 1.0

    @property
    def were_busy(self) -> bool:
        """Whether a time that was too long may be theirs."""
        return self.share > self.BUSY

    @staticmethod
    def _used() -> tuple[float, float, float]:
        """Return seconds of all processors, of those that worked, and of this process and the children that have ended."""
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        own = sum(
            each.ru_utime + each.ru_stime
            for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return sum(ticks) / second, (sum(ticks) - ticks[3] - ticks[4]) / second, own
