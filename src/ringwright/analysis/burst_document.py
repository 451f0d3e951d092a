"""What is told of bursts, as typed structures: schema ``ringwright.summary/1``, key ``bursts``."""

from __future__ import annotations

from typing import TypedDict


class BurstFigures(TypedDict):
    """Figures of some transfers. None: not known, or of pauses: no NIC has two bursts.

    ``gap_us`` is the pause from the end of a burst to the beginning of the next of the same NIC, ``duty`` the share of the
    time in which a NIC sends (in the mean over the NICs that send), ``incast`` how many sources send to one NIC at once,
    weighted by time, while at least one does.
    """

    transfers: int
    bytes: float
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


class NicBursts(BurstFigures):
    """What one NIC sends, and the incast of what it receives."""

    nic: str


class PhaseBursts(BurstFigures):
    """Transfers of one phase alone; its duty is a share of the whole time."""

    phase: str


class StepBursts(BurstFigures):
    """Transfers of one step alone; its duty is a share of the time from its first to its last transfer."""

    step: int


class Bursts(BurstFigures):
    """Bursts of all NICs, and by NIC, phase and step; ``window_us`` is the time of which ``duty`` is a share."""

    gap_rule: str
    gap_us: float
    window_us: float | None
    nics: list[NicBursts]
    phases: list[PhaseBursts]
    steps: list[StepBursts]
