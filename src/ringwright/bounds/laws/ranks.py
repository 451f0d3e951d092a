"""The laws of ranks: no more are seen than are expected, and one alone has no bandwidth. A process that names no rank is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringwright.bounds.laws.law import Law


@dataclass(frozen=True, slots=True)
class Census:
    """Ranks seen and expected (None: unknown, or not believed), their hosts, and what the law refused of the input."""

    seen: int
    expected: int | None
    hosts: int
    refused: str = ""


def census(devices: Sequence[Mapping[str, Any]], expected: int | None) -> Census:
    """Count processes and devices (keys rank and host, each may be None) against the ranks that are expected.

    Where there are more than expected, those without a rank are left out; where still too many are left, or none, the
    expected number is taken as wrong.
    """
    hosts = {row["host"] for row in devices if row["host"]}
    if expected is None or len(devices) <= expected:
        return Census(len(devices), expected, len(hosts))
    ranks = {row["rank"] for row in devices if row["rank"] is not None}
    told = f"{len(devices)} processes or devices for {expected} ranks expected"
    if not ranks or len(ranks) > expected or max(ranks) >= expected:
        return Census(len(ranks) or len(devices), None, len(hosts), f"{told}: that number is not believed")
    others = [row for row in devices if row["rank"] is None]
    homes = {row["host"] for row in devices if row["rank"] is not None and row["host"]}
    what = f"{len(others)} without a rank not counted ({_hosts(others)})" if others else "some ranks are seen twice"
    return Census(len(ranks), expected, len(homes) or len(hosts), f"{told}: {what}")


def _hosts(rows: Sequence[Mapping[str, Any]]) -> str:
    named = sorted({str(row["host"]) for row in rows if row["host"]})
    return "on " + ", ".join(named[:3]) if named else "on no host"


def alone(ranks: int | None) -> str:
    """Return why operations of so many ranks have no bandwidth; empty where they may have one."""
    return "its table lists one rank" if ranks == 1 else ""


def _judge(ranks: Sequence[int | None], expected: int | None) -> str:
    """Return what the law refuses of processes that name these ranks."""
    return census([{"rank": rank, "host": "a"} for rank in ranks], expected).refused


LAWS = (
    Law(
        "ranks",
        "no more ranks are seen than are expected, and the rows are those of so many ranks",
        "the launcher's own count: torchrun's WORLD_SIZE, the nranks of NCCL's communicators",
        _judge,
        kept=(((0, 1, 2), 4), ((0, 1), 2), ((0, None), None)),
        broken=(((0, 1, None), 2), ((0, 1, 2, 3), 2)),
    ),
    Law(
        "alone",
        "what one rank does alone moves nothing between ranks: it has a time and no bandwidth",
        "NVIDIA/nccl-tests, doc/PERFORMANCE.md: bus bandwidth has the factor (n - 1) / n",
        alone,
        kept=((2,), (None,)),
        broken=((1,),),
    ),
)
