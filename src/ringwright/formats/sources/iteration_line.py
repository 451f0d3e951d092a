"""The line that Megatron-LM, and what is made of it, prints of an iteration: its number, of how many, and its mean time.

Wherever it stands it is read here: in a framework's own log, and between the lines of NCCL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_ITERATION = re.compile(
    rf"\biteration[= ] *(?P<n>\d{{1,15}})/ *(?P<of>\d{{1,15}}) \|.{{0,2000}}?"
    rf"elapsed[ _]time[ _]per[ _]iteration(?: \((?P<unit>ms|s)\): |_(?P<other>ms|s)=)(?P<t>{NUMBER})"
)


@dataclass(frozen=True, slots=True)
class IterationLine:
    """What such a line says; the seconds are the mean of the iterations since the line before."""

    number: int
    total: int
    seconds: float


def iteration_line(text: str) -> IterationLine | None:
    """Return what a line says of an iteration, None where it is no such line."""
    match = _ITERATION.search(text)
    if match is None:
        return None
    seconds = float(match["t"]) / (1000 if (match["unit"] or match["other"]) == "ms" else 1)
    return IterationLine(int(match["n"]), int(match["of"]), seconds)
