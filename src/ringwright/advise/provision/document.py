"""The object of schema ``ringwright.provision/1``: what a program that reads it finds."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.advise.provision.optics import Headroom
from ringwright.advise.provision.sensitivity import ClassSensitivity
from ringwright.calls.provenance import AskedOf
from ringwright.executors.fan_out import ExecutorAccount

SCHEMA = "ringwright.provision/1"


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """A network of a fabric: its ports, tiers, size in Gb/s of all cables, and what it costs where prices are given."""

    nics_per_gpu: float
    nic_gbs: float
    oversubscription: dict[str, float]
    cable_gbits: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class ProvisionEdge:
    """The recommended network with one part a step smaller: its step, longer than the promise; null where there is none.

    ``keeps`` is true only where that would cost more and keep the step too.
    """

    what: str
    value: float | None
    step_us: float | None
    keeps: bool


@dataclass(frozen=True, slots=True)
class BurstRow:
    """What a port sends with no pause that ``gap_rule`` counts: bytes, pauses between bursts, the share of time it sends."""

    size_bytes_p50: float | None
    size_bytes_p95: float | None
    size_bytes_p99: float | None
    gap_us_p50: float | None
    duty: float | None
    count: int
    bytes_per_nic: float
    gap_rule: str


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """An operation that was sent through queues: of which role, its size, the size that was sent, groups at work at once."""

    role: str
    op: str
    size_bytes: int
    sent_bytes: int
    groups: int


@dataclass(frozen=True, slots=True)
class BufferRow:
    """The step with buffers of ``buffer_bytes``, with half of them, and what packets met; ``why`` where no buffer is named."""

    buffer_bytes: int | None
    transport: str
    step_us: float | None
    smaller_bytes: int | None
    smaller_step_us: float | None
    smaller_why: str
    drops: int | None
    pauses: int | None
    smaller_drops: int | None
    smaller_pauses: int | None
    operations: list[QueuedRow]
    why: str


@dataclass(frozen=True, slots=True)
class ProvisionRow:
    """A workload on a fabric; all but the first four are null where ``declined`` or a device that is too small says why.

    ``longer_*``: by which share of the step on the fabric as it is the step is longer, of 5, 50 and 95 % of draws; null unless
    asked for. ``reference_us`` (the fabric as it is) and ``step_us`` (the least network) are simulated; ``*_p50`` is the most
    probable one, as simulate answers, null where no such steps were measured. ``export`` is the file of the recommended
    network, null unless one was written.
    """

    workload: str
    fabric: str
    declined: str | None = None
    fits: bool | None = None
    too_large: str | None = None
    parallel: str | None = None
    gpus: int | None = None
    micro_batches: int | None = None
    samples: float | None = None
    peak_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    given: NetworkRow | None = None
    reference_us: float | None = None
    reference_us_p05: float | None = None
    reference_us_p50: float | None = None
    reference_us_p95: float | None = None
    unlimited_us: float | None = None
    most_us: float | None = None
    step_us: float | None = None
    longer_p05: float | None = None
    longer_p50: float | None = None
    longer_p95: float | None = None
    export: str | None = None
    step_us_p05: float | None = None
    step_us_p50: float | None = None
    step_us_p95: float | None = None
    nics_per_gpu: float | None = None
    nic_gbs: float | None = None
    rails: int | None = None
    oversubscription: dict[str, float] | None = None
    cable_gbits: float | None = None
    cost: float | None = None
    edges: list[ProvisionEdge] | None = None
    buffer_bytes: int | None = None
    buffers: BufferRow | None = None
    headroom: Headroom | None = None
    bursts: BurstRow | None = None
    sensitivity: list[ClassSensitivity] | None = None
    simulated: int | None = None


@dataclass(frozen=True, slots=True)
class ProvisionDocument:
    """All rows, and what they rest on."""

    schema: str
    asked: AskedOf
    within: float
    reference: str
    rows: list[ProvisionRow]
    assumptions: list[str]
    left_out: list[str]
    executor: ExecutorAccount
