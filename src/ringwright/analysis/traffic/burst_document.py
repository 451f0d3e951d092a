"""What is told of bursts, as typed structures: schema ``ringwright.summary/1``, key ``bursts``."""

from __future__ import annotations

from typing import TypedDict


class BurstFigures(TypedDict):
    """Figures of some transfers. None: not known, or of pauses: no NIC has two bursts.

    Sizes are those of bursts whose every transfer has a known size; ``unsized`` transfers have none, and ``bytes`` lacks theirs.
    ``gap_us`` is the pause from the end of a burst to the beginning of the next of the same NIC, ``duty`` the share of the
    time in which a NIC sends (in the mean over the NICs that send), ``incast`` how many sources send to one NIC at once,
    weighted by time, while at least one does.
    """

    transfers: int
    unsized: int
    bytes: float | None
    count: int
    size_bytes_p50: float | None
    size_bytes_p95: float | None
    size_bytes_p99: float | None
    gap_us_p50: float | None
    gap_us_p95: float | None
    gap_us_p99: float | None
    duration_us_p50: float | None
    duration_us_p95: float | None
    duration_us_p99: float | None
    duty: float | None
    incast_p50: int | None
    incast_p95: int | None
    incast_p99: int | None
    incast_max: int | None


class SizeClass(TypedDict):
    """How many bursts are of a size from the low bound up to, not including, the high one."""

    log2_low_bytes: int
    log2_high_bytes: int
    count: int


class GapClass(TypedDict):
    """How many pauses between bursts last from the low bound up to, not including, the high one."""

    log2_low_us: int
    log2_high_us: int
    count: int


class BurstClasses(TypedDict):
    """Sizes and pauses of bursts in powers of two."""

    size_classes: list[SizeClass]
    gap_classes: list[GapClass]


class OfNic(TypedDict):
    """Which NIC a row is of."""

    nic: str


class OfPhase(TypedDict):
    """Which phase a row is of."""

    phase: str


class OfStep(TypedDict):
    """Which step a row is of."""

    step: int


class NicBursts(OfNic, BurstFigures):
    """What one NIC sends, and the incast of what it receives."""


class PhaseBursts(OfPhase, BurstFigures):
    """Transfers of one phase alone; its duty is a share of the whole time."""


class StepBursts(OfStep, BurstFigures):
    """Transfers of one step alone; its duty is a share of the time from its first to its last transfer."""


class GapRule(TypedDict):
    """What ends a burst, in words and as the longest pause within one; ``window_us`` is the time of which ``duty`` is a share."""

    gap_rule: str
    gap_us: float
    window_us: float | None


class BurstRows(TypedDict):
    """The figures by NIC, phase and step, and how many rows there would be where not all are kept."""

    nics: list[NicBursts]
    phases: list[PhaseBursts]
    steps: list[StepBursts]
    nics_total: int
    steps_total: int


class Bursts(GapRule, BurstFigures, BurstClasses, BurstRows):
    """Bursts of all NICs, and by NIC, phase and step."""


class ToldBursts(Bursts):
    """Bursts and the ground they stand on.

    ``of``: what sends, NICs or ranks; ``ground``: what times and sizes are; ``limits``: what the figures lack.
    """

    of: str
    ground: str
    limits: list[str]
