"""A map of winners: who is the fastest among how many ranks at which size, and what the network's adders gain there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_count, format_size
from ringwright.reports import layout
from ringwright.reports.calls.fault_costs import write_faults

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.calls.winners import WinnerMap, WonPoint, WonRegion

SURE = 0.75  # chance from which on one is called faster


def write(result: WinnerMap, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.winners/1`` for a terminal."""
    out = layout.console(file, width=width)
    ground = f"{result.collective} on {result.fabric}, 2 to {format_count(result.ranks[-1])} ranks"
    layout.line(out, f"simulated: {ground}", style="bold", indent=0)
    if result.provenance:
        layout.line(out, f"rates: {result.provenance}", style="dim", indent=0)
    write_faults(out, result.asked)
    names = {name: spelling for name, spelling in result.algorithms.items() if name != spelling}
    if names:
        layout.line(out, "; ".join(f"{name}: {each}" for name, each in names.items()), style="dim", indent=0)
    _map(out, result)
    _regions(out, result)
    _declined(out, result)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result.left_out))


def _map(out: Console, result: WinnerMap) -> None:
    """Print the winner by size and group; behind one that adds in the network how many times faster than hosts it is."""
    layout.heading(
        out, "Winner by ranks", "x: times as fast as the best of the hosts alone, where the network adds for the winner"
    )
    points = {(point.size_bytes, point.ranks): point for point in result.points}
    table = [
        [format_size(size), *(_entry(points.get((size, ranks))) for ranks in result.ranks)]
        for size in result.sizes_bytes
    ]
    layout.table(out, ["size", *(format_count(ranks) for ranks in result.ranks)], table)


def _entry(point: WonPoint | None) -> str:
    if point is None:
        return "nobody"
    gain = point.gain_in_network
    return f"{point.winner} {gain:.2f}x" if point.in_network and gain is not None else point.winner


def _regions(out: Console, result: WinnerMap) -> None:
    layout.heading(out, "Regions", "of sizes with one winner, as far as sizes were asked about")
    by_ranks: dict[int, list[str]] = {}
    for region in result.regions:
        by_ranks.setdefault(region.ranks, []).append(f"{region.winner} {spans(region)}")
    for told, ranks in alike(by_ranks):
        layout.line(out, f"{ranks} ranks: {told}")
    if all(point.time_us_p05 is None for point in result.points):
        layout.line(out, "an engine's times, without intervals: nothing was measured on such fabrics", style="dim")
    doubtful = [point for point in result.points if point.chance is not None and point.chance < SURE]
    if doubtful:
        layout.line(out, f"at {len(doubtful)} of {len(result.points)} points nobody can tell the winner from the next")


def alike(by_ranks: Mapping[int, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the lines of groups, those that say the same as one: (regions, ranks)."""
    same: dict[str, list[str]] = {}
    for ranks, told in by_ranks.items():
        same.setdefault(", ".join(told), []).append(format_count(ranks))
    return [(told, ", ".join(ranks)) for told, ranks in same.items()]


def spans(region: WonRegion) -> str:
    """Return the sizes of a region in words: ``4 B to 4 KiB``, or the one size."""
    first, last = format_size(region.first_bytes), format_size(region.last_bytes)
    return first if first == last else f"{first} to {last}"


def _declined(out: Console, result: WinnerMap) -> None:
    if result.declined:
        layout.heading(out, "Declined")
    every = len(result.sizes_bytes)
    for each in result.declined:
        among = f"among {', '.join(format_count(ranks) for ranks in each.ranks)}"
        sizes = "" if len(each.sizes_bytes) == every else f" at {', '.join(map(format_size, each.sizes_bytes))}"
        layout.line(out, f"{each.name} {among}{sizes}: {each.why}", style="yellow")
