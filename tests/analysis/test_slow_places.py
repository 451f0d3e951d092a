"""Which rank's own work is slow, and which place the slow groups of a network have in common, on small recordings made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ringwright.analysis.slow.own_work import own_work
from ringwright.analysis.slow.places import Places
from ringwright.analysis.slow.slow_groups import slow_groups
from ringwright.analysis.slow.slow_work import slow_work
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

STEPS = 4
Groups = Mapping[str, Sequence[Sequence[int]]]


def devices(hosts: Sequence[str], nics: Sequence[str] = (), parts: Sequence[str] = ()) -> list[dict[str, Any]]:
    told = [{"kind": "device", "rank": rank, "host": host, "value": "0"} for rank, host in enumerate(hosts)]
    for name, listed in (("nic", nics), ("value", parts)):
        for row, value in zip(told, listed, strict=False):
            row[name] = value
    return told


def recording(groups: Groups, times: Mapping[tuple[int, ...], float], where: list[dict[str, Any]]) -> Trace:
    """Return calls of 1 ms of all groups, by role, each of ``times`` so many times as long; the last rank has a call of its own."""
    events, comms = [], []
    for role, listed in groups.items():
        for members in listed:
            number = len(comms)
            comms.append({"communicator": number, "members": list(members), "size": len(members), "role": role})
            lasted = 1e-3 * times.get(tuple(members), 1.0)
            for at in range(3 * STEPS):
                call = {"kind": "collective", "op": "all-reduce", "communicator": number, "sequence": at, "role": role}
                call |= {"size_bytes": 1 << 20, "iteration": at // 3, "start_s": at * 0.1, "duration_s": lasted}
                events += [call | {"rank": rank} for rank in members]
    tables = {"events": rows("events", events), "communicators": rows("communicators", comms)}
    return Trace.of(tables | {"topology": rows("topology", where)}, {"source": "test", "world": 8})


PAIRS = {"dp": [(0, 4), (1, 5), (2, 6), (3, 7)]}
GRID = {"tp": [(0, 1), (2, 3), (4, 5), (6, 7)], "dp": [(0, 2, 4, 6), (1, 3, 5, 7)]}
TWO_HOSTS = ["a"] * 4 + ["b"] * 4
ALONE = [f"h{rank}" for rank in range(8)]
FOURS = {"tp": [(0, 1, 2, 3), (4, 5, 6, 7)]}


@pytest.mark.parametrize(
    ("groups", "times", "where", "kind", "ranks"),
    [
        # Both roles of rank 3 are slow, and nobody else is in both.
        (GRID, {(2, 3): 2.0, (1, 3, 5, 7): 3.0}, devices(ALONE), "slow-rank", [3]),
        # The pairs of the grid that are not slow leave rank 3 alone, though its own pair does not show it.
        (GRID, {(1, 3, 5, 7): 3.0, (2, 3): 1.1}, devices(ALONE), "slow-rank", [3]),
        # One pair between two hosts: either end.
        (PAIRS, {(1, 5): 2.0}, devices(TWO_HOSTS), "slow-group", [1, 5]),
        # Ranks 0 and 1 share a NIC, so do 4 and 5: nothing tells which of the two.
        (PAIRS, {(0, 4): 2.0, (1, 5): 2.0}, devices(TWO_HOSTS, list("xxyyzzww")), "slow-network", [0, 1, 4, 5]),
        # Within a host everything is as usual: it is the network of ranks 2 and 6 together.
        ({**PAIRS, **FOURS}, {(2, 6): 1.5}, devices(TWO_HOSTS), "slow-group", [2, 6]),
    ],
)
def test_the_narrowest_place_that_fits(
    groups: Groups, times: dict[tuple[int, ...], float], where: list[dict[str, Any]], kind: str, ranks: list[int]
) -> None:
    (found,) = slow_groups(recording(groups, times, where))
    assert (found["kind"], found["ranks"]) == (kind, ranks)
    assert found["evidence"][0].endswith(f"{len(groups['dp']) - 1} other group{'s' * (len(groups['dp']) > 2)}")


@pytest.mark.parametrize(
    ("groups", "times", "where"),
    [
        (GRID, {}, devices(ALONE)),
        (GRID, {(0, 2, 4, 6): 1.05}, devices(ALONE)),  # within what groups differ by
        (PAIRS, dict.fromkeys(PAIRS["dp"], 2.0), devices(TWO_HOSTS)),  # all alike: nothing tells what is usual
        (PAIRS, dict.fromkeys(PAIRS["dp"][:3], 2.0), devices(TWO_HOSTS)),  # most of them
        (PAIRS, {(0, 4): 2.0, (1, 5): 2.0}, devices(TWO_HOSTS)),  # no one place has both, and no other
        ({"dp": [tuple(range(8))]}, {tuple(range(8)): 2.0}, devices(ALONE)),  # no sibling
        ({"tp": [(0, 1), (2, 4)]}, {(2, 4): 3.0}, devices(TWO_HOSTS)),  # one is within a host, the other is not
        ({"tp": [(0, 1), (3, 4)]}, {(3, 4): 3.0}, devices(ALONE, parts=list("00001111"))),  # one crosses a switch
        (PAIRS, {(1, 5): 2.0}, []),  # nobody says that the groups lie alike
    ],
)
def test_nobody_where_nothing_tells_slow_from_usual(
    groups: Groups, times: dict[tuple[int, ...], float], where: list[dict[str, Any]]
) -> None:
    assert slow_groups(recording(groups, times, where)) == []


def test_places_of_a_recording() -> None:
    places = Places(recording(PAIRS, {}, devices(TWO_HOSTS, list("xxyyzzww"), list("00001111"))))
    known = places.all(range(8))
    assert [(each.name, sorted(each.ranks)) for each in known["nic"]] == [
        ("a x", [0, 1]),
        ("a y", [2, 3]),
        ("b w", [6, 7]),
        ("b z", [4, 5]),
    ]
    assert [sorted(each.ranks) for each in known["network"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not known["host"][0].is_left((0, 1))
    assert known["host"][0].is_left((0, 4))
    assert places.crosses((0, 4))
    assert not places.crosses((0, 1))


def working(times: Mapping[int, float], delays: Mapping[int, float] = {}, ranks: int = 4) -> Trace:
    """Return steps of 10 ms of work, then a call that ends together; ``times`` as long, or ``delays`` s later."""
    events, clock = [], 0.0
    for step in range(STEPS):
        ends = {}
        for rank in range(ranks):
            begins, lasted = clock + delays.get(rank, 0.0), 0.01 * times.get(rank, 1.0)
            events.append({"kind": "compute", "rank": rank, "iteration": step, "start_s": begins, "duration_s": lasted})
            ends[rank] = begins + lasted
        over = max(ends.values()) + 0.005
        for rank, ended in ends.items():
            call = {
                "kind": "collective",
                "op": "all-reduce",
                "communicator": 0,
                "sequence": step,
                "size_bytes": 1 << 20,
            }
            events.append(call | {"rank": rank, "iteration": step, "start_s": ended, "duration_s": over - ended})
        clock = over
    comms = [{"communicator": 0, "members": list(range(ranks)), "size": ranks}]
    tables = {"events": rows("events", events), "communicators": rows("communicators", comms)}
    return Trace.of(tables, {"source": "test", "world": ranks})


@pytest.mark.parametrize(
    ("times", "delays", "ranks", "says"),
    [
        ({2: 3.0}, {}, [2], "rank 2 computes 3 times as long as ranks that do the same: 30 ms"),
        ({}, {1: 0.02}, [1], "rank 1 begins 20 ms a step later than it could"),
    ],
)
def test_whose_own_time_is_longer(
    times: dict[int, float], delays: dict[int, float], ranks: list[int], says: str
) -> None:
    told = slow_work(working(times, delays))
    assert told is not None
    verdict, _, (one,) = told
    assert (verdict, one["ranks"]) == ("straggler", ranks)
    assert one["evidence"][0].startswith(says)


def test_a_rank_that_waits_has_no_time_of_its_own_more() -> None:
    seen = own_work(working({2: 3.0}))
    assert seen is not None
    assert seen.delay.max() < 1e-9
    assert seen.work[[0, 1, 3]].max() == pytest.approx(0.01)


@pytest.mark.parametrize("times", [{}, {0: 1.1}, {0: 3.0, 1: 3.0, 2: 3.0}])
def test_nobody_is_slow_where_ranks_differ_by_little_or_most_of_them(times: dict[int, float]) -> None:
    told = slow_work(working(times))
    assert told is not None
    assert told[2] == []
