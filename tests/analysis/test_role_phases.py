"""Roles by what is carried in which phase: jobs of one group, whose members tell of nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ringwright.analysis.role_phases import told_by
from ringwright.analysis.summary import summarise
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

MIB = 1 << 20
DDP = [("backward", "all-reduce", 25 * MIB), ("backward", "all-reduce", MIB), ("forward", "broadcast", 400)]
FSDP = [
    *(("forward", "all-gather", MIB), ("backward", "all-gather", MIB), ("backward", "reduce-scatter", MIB)),
    ("optimizer", "all-reduce", 4),
]
TENSOR = [("forward", "all-reduce", MIB), ("backward", "all-reduce", MIB)]
SEQUENCE = [(phase, op, MIB) for phase in ("forward", "backward") for op in ("all-gather", "reduce-scatter")]
MESSAGES = [("forward", "send", MIB), ("backward", "recv", MIB), ("setup", "broadcast", 9 * MIB)]


def job(groups: dict[tuple[int, ...], list[tuple[str, str, int | None]]], world: int = 4, **more: Any) -> Trace:
    events, comms = [], []
    for number, (members, calls) in enumerate(groups.items()):
        comms.append(
            {"communicator": number, "comm_id": str(number), "size": len(members), "members": list(members), **more}
        )
        for turn, (phase, op, size) in enumerate(calls):
            kind = "p2p" if op in ("send", "recv") else "collective"
            said = {
                "kind": kind,
                "op": op,
                "phase": phase,
                "size_bytes": size,
                "communicator": number,
                "multiplicity": 1,
            }
            events += [said | {"rank": rank, "sequence": turn, "nranks": len(members)} for rank in members]
    frames = {"events": rows("events", events), "communicators": rows("communicators", comms)}
    return Trace.of(frames, {"source": "calls", "world": world})


def roles(trace: Trace) -> tuple[list[str | None], dict[str, int | None]]:
    told = summarise(trace)
    return [row["role"] for row in told["communicator_list"]], told["roles"]


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("calls", "role", "degrees"),
    [
        (DDP, "dp", (1, 1, 4)),
        ([*DDP, ("forward", "all-reduce", 4)], "dp", (1, 1, 4)),  # a loss for the log
        (FSDP, "dp", (1, 1, 4)),
        (TENSOR, "tp", (4, 1, 1)),
        (SEQUENCE, "tp", (4, 1, 1)),
        (MESSAGES, "pp", (1, 4, 1)),
    ],
)
@pytest.mark.parametrize("stated", [None, "world"])
def test_one_group(calls: Any, role: str, degrees: tuple[int, int, int], stated: str | None) -> None:
    trace = job({ALL: calls}, role=stated)
    named, found = roles(trace)
    assert named == [role]
    assert (found["tp"], found["pp"], found["dp"]) == degrees
    assert "confidence 0." in summarise(trace)["communicator_list"][0]["role_evidence"]


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [("setup", "all-reduce", MIB)],
        [*DDP, ("backward", "all-reduce", None)],  # unknown is not nothing
        [*DDP, ("forward", "all-to-all", 99 * MIB)],
        [("forward", "all-reduce", MIB), ("backward", "all-reduce", 5 * MIB)],  # neither
    ],
)
def test_what_does_not_tell(calls: Any) -> None:
    assert roles(job({ALL: calls}))[0] == ["world"]


def test_shards_and_their_replicas_are_all_data_parallel() -> None:
    """Neighbours are no tensor group only because they are neighbours."""
    named, found = roles(job({(0, 1): FSDP, (2, 3): FSDP, (0, 2): DDP, (1, 3): DDP}))
    assert named == ["dp"] * 4
    assert (found["tp"], found["pp"], found["dp"]) == (1, 1, 4)


def test_two_dimensions() -> None:
    named, found = roles(job({(0, 1): TENSOR, (2, 3): TENSOR, (0, 2): FSDP, (1, 3): FSDP}))
    assert named == ["tp", "tp", "dp", "dp"]
    assert (found["tp"], found["pp"], found["dp"]) == (2, 1, 2)


def test_what_a_source_states_stands() -> None:
    assert roles(job({ALL: DDP}, role="ep"))[0] == ["ep"]
    assert told_by({("backward", "all-reduce"): 0}) is None
