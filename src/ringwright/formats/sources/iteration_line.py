"""The lines that trainers print of an iteration: Megatron-LM, and what is made of it, its mean time; torchtitan its rates.

Wherever it stands it is read here: in a framework's own log, and between the lines of NCCL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ringwright.formats.sources.launchers import parse_time

NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_ITERATION = re.compile(
    rf"\biteration[= ] *(?P<n>\d{{1,15}})/ *(?P<of>\d{{1,15}}) \|.{{0,2000}}?"
    rf"elapsed[ _]time[ _]per[ _]iteration(?: \((?P<unit>ms|s)\): |_(?P<other>ms|s)=)(?P<t>{NUMBER})"
)
_RATED = re.compile(
    r"(?P<before>.{0,300}?)\bstep: {1,9}(?P<n>\d{1,15})\b.{0,200}?\b(?:tps|wps): {1,9}(?P<tokens>[\d,]{1,20})"
    r"(?:.{0,80}?\btflops: {1,9}(?P<flops>[\d,.]{1,20}))?(?:.{0,80}?\bmfu: {1,9}(?P<mfu>[\d.]{1,9})%)?"
)
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{1,6}")
_OF_RANK = re.compile(r"\[rank(\d{1,7})\]")


@dataclass(frozen=True, slots=True)
class RatedStep:
    """What torchtitan prints of a step: tokens a second and a device, and shares of its peak; when, and on which rank."""

    number: int
    tokens_per_s: float
    tflops: float | None
    mfu_percent: float | None
    stamp_s: float | None
    rank: int | None


def rated_step(text: str) -> RatedStep | None:
    """Return what a line of torchtitan says of a step, None where it is no such line."""
    match = _RATED.match(text) if "step:" in text else None
    tokens = None if match is None else _number(match["tokens"])
    if match is None or tokens is None:
        return None
    stamp, rank = _STAMP.search(match["before"]), _OF_RANK.search(match["before"])
    return RatedStep(
        int(match["n"]),
        tokens,
        _number(match["flops"]),
        _number(match["mfu"]),
        parse_time(stamp[0]) if stamp else None,
        int(rank[1]) if rank else None,
    )


def _number(said: str | None) -> float | None:
    try:
        return float((said or "").replace(",", ""))
    except ValueError:
        return None


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
