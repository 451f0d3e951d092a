"""What ends a search: its work, counted the same on every machine; where somebody asks for it, a clock; or Ctrl-C."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

COMPLETE, BY_WORK, BY_CLOCK, INTERRUPTED = "complete", "work", "clock", "interrupted"
ENDS = {
    COMPLETE: "nothing that is left promises more",
    BY_WORK: "its work ended it: more with --work",
    BY_CLOCK: "the clock ended it: more with a longer --budget",
    INTERRUPTED: "interrupted before its end",
}
# Instances of tasks and operations: about a minute of a quiet machine of two cores.
WORK = 6_000_000


def ended(*by: str) -> str:
    """Return the one of several ends that says most."""
    return max(by, key=list(ENDS).index, default=COMPLETE)


@dataclass(frozen=True)
class Limits:
    """How much work an evaluator may have done, and until which moment of the monotonic clock."""

    work: float = math.inf
    until_s: float = math.inf

    def share(self, part: float, done: int) -> Limits:
        """Return the limits of a part of what is left, from now on and after so much work was ``done``."""
        now_s = time.monotonic()
        return Limits(done + part * (self.work - done), now_s + part * (self.until_s - now_s))

    def by(self, done: int) -> str:
        """Return which of both ends it after so much work; ``complete`` where none does."""
        late = time.monotonic() > self.until_s
        return BY_CLOCK if late else BY_WORK if done >= self.work else COMPLETE


NO_LIMITS = Limits()
