"""A lab's run as a report reads it: schema ``ringwright.lab/1``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node of the lab."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class LabLink:
    """A link, at its sender's interface."""

    name: str
    interface: str
    rate_mbit_s: float


@dataclass(frozen=True, slots=True)
class LabExit:
    """How a rank ended, and what it said last."""

    rank: int
    code: int
    took_s: float
    is_late: bool
    tail: str = ""


@dataclass(frozen=True, slots=True)
class LabEvent:
    """What happened when, in seconds since the ranks' start; of a fault, what changed, how long that took, or why it failed."""

    event: str
    script_s: float = 0.0
    what: str = ""
    took_s: float | None = None
    note: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class LabTotal:
    """Frames that a link sent, and those that its queue had no room for."""

    name: str
    bytes: int
    packets: int
    dropped: int


@dataclass(frozen=True, slots=True)
class LabLimit:
    """What limited the run, and the busiest process."""

    what: str
    busiest_name: str
    busiest_cores: float


@dataclass(frozen=True, slots=True)
class LabRun:
    """The whole run; ``switched`` counts by link what switches in software did to frames."""

    fabric: str
    ranks: int
    seed: int
    rootless: bool
    tcp: str
    forwarding: str
    versions: dict[str, str]
    out: str
    verdict: str
    limit: LabLimit
    nodes: list[LabNode]
    links: list[LabLink]
    exits: list[LabExit]
    timeline: list[LabEvent]
    totals: list[LabTotal]
    switched: dict[str, dict[str, int]]
    outside_simulation: list[str]


@dataclass(frozen=True, slots=True)
class ListedLab:
    """A lab of this user that lives or was left."""

    folder: str
    is_alive: bool
    pid: int | None = None
    fabric: str | None = None
