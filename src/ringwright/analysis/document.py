"""The summary as a typed structure: schema ``ringwright.summary/1``, keys in the order in which they are written.

A key that a section does not have is an error of the type checker, here and in every report that reads it.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ringwright.analysis.topology_document import ReadTopology

Row = dict[str, Any]  # a row of a frame, as its analysis names the columns


class Origin(TypedDict):
    """What was read, and with which library."""

    schema: str
    source: str
    kind: str
    inputs: list[str]
    nccl_versions: list[str]
    library: str | None
    folded: bool


class SizeCount(TypedDict):
    """How many communicators have a size."""

    size: int
    count: int


class Iteration(TypedDict):
    """A step, and how long it took on the slowest rank."""

    iteration: int | None
    time_s: float


class Calls(TypedDict):
    """The ranks and communicators, and what they called."""

    hosts: int
    ranks_seen: int
    ranks_expected: int | None
    communicators: list[SizeCount]
    operations: list[Row]
    roles: dict[str, int | None]
    ledger: dict[str, int]
    errors: list[Row]
    errors_total: int
    iterations: list[Iteration]
    timeline: Row | None
    concurrency: list[Row]
    algorithms: list[Row]
    by_role: list[Row]
    by_phase: list[Row]
    communicator_list: list[Row]
    ranks: list[Row]


class Culprit(TypedDict):
    """Who is to blame, how sure that is, 0 to 1, and on what evidence; its keys in any order.

    ``command`` is what to type next, in every culprit of a summary, empty where no file is known. ``begin_step`` and
    ``steps_share`` are told of ranks that died or were late: from which step on, and in which share of the steps.
    """

    kind: str
    ranks: list[int]
    hosts: list[str]
    confidence: float
    evidence: list[str]
    command: NotRequired[str]
    begin_step: NotRequired[int | None]
    steps_share: NotRequired[float]


class Times(TypedDict):
    """What only recordings with times, states, metrics or measurements hold."""

    verdict: Culprit | None
    culprits: list[Culprit]
    waits: list[Row]
    arrivals: Row | None
    steps_us: dict[str, list[float]]
    kernels: list[Row]
    overlap: Row
    exposed_us: float | None
    overlapped_us: float | None
    bandwidth: list[Row]
    bars: Row | None
    not_examined: list[str]
    passed_over: list[str]
    told_limits: list[str]


class PairBytes(TypedDict):
    """Bytes from one rank to another."""

    src: int
    dst: int
    bytes: int


class Traffic(TypedDict):
    """Bytes by size class, pair of ranks, pair of hosts and NIC, and the topology that carried them."""

    size_classes: list[Row]
    pair_bytes: list[PairBytes]
    truncated: bool
    host_pair_bytes: list[Row]
    nic_bytes: list[Row]
    pair_ground: Row
    topology: ReadTopology


class Facts(Origin, Calls, Times, Traffic):
    """What was read or counted, before any conclusion."""


class Judgements(TypedDict):
    """What the network must carry for it, and which laws the numbers broke."""

    provision: Row
    losses: list[str]
    laws: list[Row]
    ledger_detail: list[Row]


class Judged(Facts, Judgements):
    """The inputs of the rules that make findings."""


class Conclusions(TypedDict):
    """What follows from all the other parts."""

    findings: list[Row]
    warnings: list[str]
    claims: list[Row]
    limits: list[str]
    coverage: str


class Summary(Judged, Conclusions):
    """The whole of ``ringwright summary --json``."""
