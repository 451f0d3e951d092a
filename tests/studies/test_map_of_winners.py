"""The map of winners: its points are the least of what ``simulate`` says, its regions cover them, and what declines is named."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from ringwright.calls.floors import Floors
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.winners import ARCHITECTURES, WinnerMap, groups_of, regions, winners
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.ground.errors import EXIT_USAGE, UsageError
from ringwright.model.collective import Collective
from ringwright.reports.calls import winners as report

SIZES = [4, 4096, 1 << 20, 1 << 26]


def question(machine: str, group: range | None = None) -> SimulationSpec:
    return SimulationSpec("all-reduce", fabric(machine), group=group)


@pytest.fixture(scope="module")
def mapped() -> WinnerMap:
    return winners(question("switch:36,switches=quantum", range(36)), None, SIZES)


@pytest.mark.parametrize(("ranks", "groups"), [(2, [2]), (6, [2, 4, 6]), (8, [2, 4, 8]), (33, [2, 4, 8, 16, 32, 33])])
def test_groups_are_powers_of_two_and_all(ranks: int, groups: list[int]) -> None:
    assert groups_of(question("switch:40", range(ranks))) == groups


def test_a_point_is_the_least_that_simulate_says(mapped: WinnerMap) -> None:
    told = sweep(question("switch:36,switches=quantum", range(8)), list(ARCHITECTURES.values()), SIZES)
    for size in SIZES:
        rows = [row for row in told["rows"] if row["size_bytes"] == size and row["declined"] is None]
        point = next(each for each in mapped.points if (each.ranks, each.size_bytes) == (8, size))
        assert point.time_us == pytest.approx(min(row.time_us for row in rows), rel=1e-3)
        hosts = min(row["time_us"] for row in rows if row["stream"] is None)
        inside = min(row["time_us"] for row in rows if row["stream"] is not None)
        assert point.gain_in_network == pytest.approx(hosts / inside)


def test_nothing_is_gained_by_two_ranks_and_all_of_the_bound_by_many(mapped: WinnerMap) -> None:
    large = {each.ranks: each.gain_in_network for each in mapped.points if each.size_bytes == SIZES[-1]}
    assert large[2] == pytest.approx(1.0, rel=0.01)
    for ranks in (4, 8, 16, 32):
        assert large[ranks] == pytest.approx(2 * (ranks - 1) / ranks, rel=0.03)


def test_equals_go_to_what_needs_less_of_the_network(mapped: WinnerMap) -> None:
    at_two = [each.winner for each in mapped.points if each.ranks == 2 and each.size_bytes == SIZES[-1]]
    assert at_two == ["ring"]


def test_regions_cover_every_point_once(mapped: WinnerMap) -> None:
    for ranks in mapped.ranks:
        mine = [each for each in mapped.regions if each.ranks == ranks]
        covered = [size for size in SIZES for each in mine if each.first_bytes <= size <= each.last_bytes]
        assert covered == SIZES
        assert all(one.winner != two.winner for one, two in pairwise(mine))


def test_a_region_ends_where_the_winner_changes() -> None:
    point = {"ranks": 2, "in_network": False, "time_us": 1.0, "next_us": 3.0}
    ends = (("a", 1), ("a", 2), ("b", 4), ("a", 8))
    told = [SimpleNamespace(**point, winner=who, size_bytes=size) for who, size in ends]
    assert [(each.winner, each.first_bytes, each.last_bytes) for each in regions(told)] == [  # type: ignore[arg-type]
        ("a", 1, 2),
        ("b", 4, 4),
        ("a", 8, 8),
    ]


@pytest.mark.parametrize(
    ("machine", "who"), [("switch:36,switches=tofino", "pool"), ("switch:42,switches=quantum", "sat")]
)
def test_more_ranks_than_a_switch_adds_are_left_to_hosts(machine: str, who: str) -> None:
    told = winners(question(machine), None, [1 << 20])
    last = told.points[-1]
    assert not last.in_network
    assert last.gain_in_network is None
    why = next(each for each in told.declined if each.name == who and last.ranks in each.ranks)
    assert "contributions" in why.why


def test_bounds_are_searched_once_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question("switch:4,sharp=true")
    floors, calls = Floors(asked), []
    plain = floors._together
    monkeypatch.setattr(floors, "_together", lambda *given, **more: calls.append(given) or plain(*given, **more))
    small, large = (Collective("all-reduce", range(4), size) for size in (1 << 20, 4 << 20))
    assert floors.of(small) == floors.of(small) != floors.of(large)
    floors.of(Collective("reduce-scatter", range(4), 1 << 20))
    assert len(calls) == 2 * 3


def test_one_rank_and_names_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="one rank alone"):
        winners(question("switch:4", range(1)), None, SIZES)
    with pytest.raises(UsageError, match="named twice"):
        winners(question("switch:4"), ["ring", "ring"], SIZES)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_map_fits_a_terminal(mapped: WinnerMap, width: int) -> None:
    file = io.StringIO()
    report.write(mapped, file, width=width)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    gain = next(each.gain_in_network for each in mapped.points if each.ranks == 32)
    assert f" {gain:.2f}x" in text


def test_the_verb_maps_algorithms_of_choice(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "all-reduce", "--winners", "--fabric", "switch:4", "-f", "1024", "--algorithm", "ring,linear"]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "ringwright.winners/1"
    assert told["sizes_bytes"] == [4, 4096, 4 << 20]
    assert {each["winner"] for each in told["points"]} <= {"ring", "linear"}
    assert main([*asked, "--bursts"]) == EXIT_USAGE
    assert "--bursts" in capsys.readouterr().err
