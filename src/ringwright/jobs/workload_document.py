"""What a report reads of the object of schema ``ringwright.workload/1``: a model's operations, requests and memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.jobs.memory import StageMemory


@dataclass(frozen=True, slots=True)
class RequestOfRank:
    """Equal calls of one rank: see ``workloads.requests.RankRequest``."""

    stage: int
    phase: str
    layer: str | None
    role: str
    op: str
    group_ranks: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizesOfRequests:
    """How many requests a role and operation have, and the sizes in bytes that half, 95 % and 99 % of them do not exceed."""

    mode: str
    role: str
    op: str
    count: int
    p50_bytes: int
    p95_bytes: int
    p99_bytes: int


@dataclass(frozen=True, slots=True)
class WorkloadFigures:
    """A model in its parallel form: parameters, operations for each ``unit``, requests of a rank, memory by stage."""

    model: str = field(metadata={"key": "card"})
    parameters: int
    active_parameters: int
    flops_per_token: float
    unit: str
    gpus: int
    parallel: str
    mode: str
    stage: int
    all_stages: bool
    assumptions: list[str]
    requests: list[RequestOfRank]
    request_sizes: list[SizesOfRequests]
    memory: list[StageMemory]
    device_memory_bytes: int | None
    too_large: str | None
