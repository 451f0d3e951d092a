"""Recordings that make no sense replay, or end in an error that says why; never in a traceback or a hang."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.ground.errors import RingwrightError
from ringwright.ground.trace_tables import rows
from ringwright.model.stages import LinkCosts
from ringwright.model.trace import Trace
from ringwright.workloads.replay import Replay, replayed

OPS = {
    "collective": ("all-reduce", "all-reduce", "all-to-all", "reduce-scatter", "barrier", "gather", "weird", None),
    "p2p": ("send", "recv", "send-recv"),
}


def _groups(draw: random.Random, ranks: int) -> list[dict[str, Any]]:
    found = []
    for number in range(draw.randrange(1, 4)):
        some = sorted(draw.sample(range(ranks + 2), draw.randrange(1, ranks + 2)))
        members = draw.choice([list(range(ranks)), list(range(ranks)), some])
        found.append(
            {
                "communicator": number,
                "size": draw.choice([len(members), len(members), None, 0, 7]),
                "members": draw.choice([members, members, members, [-1] * len(members), None]),
                "role": draw.choice([None, "dp", "tp", "world", "pp", "fsdp"]),
            }
        )
    return found


def _event(draw: random.Random, rank: int, groups: int, at: float, lasted: float) -> dict[str, Any]:
    kind = draw.choice(["compute", "collective", "collective", "p2p", "memory", "step", "phase"])
    odd = draw.random() < 0.05
    return {
        "kind": kind,
        "op": draw.choice(OPS.get(kind, (None,))),
        "rank": None if odd else rank,
        "communicator": groups if odd else draw.randrange(groups),
        "iteration": draw.choice([1, 1, 1, 2, 2, None]),
        "phase": draw.choice([None, "forward", "backward", "optimizer", "x"]),
        "enqueue_s": draw.choice([at, None]),
        "start_s": draw.choice([None, -at, 1e300, float("nan")]) if odd else at,
        "duration_s": draw.choice([None, 0.0, -1.0, float("inf"), float("nan")]) if draw.random() < 0.1 else lasted,
        "size_bytes": draw.choice([8, None, 0, -3, 1 << 61]) if odd else 64,
        "element_bytes": draw.choice([4, 0, None]),
        "peer": draw.choice([0, 1, 9, None, -1]),
        "stream": draw.choice(["7", "8", None]),
        "root": draw.choice([0, 3, None]),
    }


def _recording(draw: random.Random) -> Trace:
    ranks, events = draw.randrange(1, 5), []
    groups = _groups(draw, ranks)
    for rank in range(ranks):
        at = 0.0
        for _ in range(draw.randrange(1, 14)):
            at, lasted = at + draw.random() * 1e-3, draw.random() * 1e-3
            events.append(_event(draw, rank, len(groups), at, lasted))
            at += lasted
    if draw.random() < 0.5:
        events = [{**event, "iteration": None} for event in events]
    edges = [
        {"src_event": draw.randrange(-1, len(events) + 2), "dst_event": draw.randrange(len(events)), "kind": "data"}
        for _ in range(draw.choice([0, 0, 5, 20]))
    ]
    frames = {
        "events": rows("events", events),
        "communicators": rows("communicators", groups),
        "edges": rows("edges", edges),
    }
    return Trace.of(frames, {"world": draw.choice([None, ranks, "x", ranks * 2])})


@pytest.mark.parametrize("seed", range(5))
def test_recordings_that_make_no_sense(seed: int) -> None:
    draw = random.Random(seed)
    done: list[Replay] = []
    refused = []
    for _ in range(40):
        try:
            found = replayed(_recording(draw))
            assert simulate(found.workload, found.costs or LinkCosts(1e9), steps=2).step_s >= 0
        except RingwrightError as error:
            refused.append(error)
        else:
            done.append(found)
    assert len(done) >= 5
    assert all(error.what and (error.where or error.remedy) for error in refused)
