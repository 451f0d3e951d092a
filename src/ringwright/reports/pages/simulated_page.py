"""The simulation as one HTML page: curves, what limits each algorithm, the load of links, the steps as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.calls.simulated_bursts import BurstAnswer
from ringwright.ground.units import format_count, format_size
from ringwright.reports import bursts, html, tables
from ringwright.reports.calls import probable
from ringwright.reports.calls.simulated import burst_title, declined, ended, fault_costs, time, unaffected
from ringwright.reports.draw import pictures, player

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.calls.detail import Detail
    from ringwright.calls.followed import FollowedRun
    from ringwright.calls.simulated_document import SimulatedCalls, SimulatedRow


def page(
    result: SimulatedCalls,
    details: list[Detail],
    command: str,
    followed: Sequence[FollowedRun | tuple[str, str]] = (),
    bursts_told: BurstAnswer | None = None,
) -> str:
    """Return the page of a ``ringwright.simulate/1`` object; ``details`` are the runs at the largest size.

    ``followed``: the runs that the page plays message by message, or the name of an algorithm and why it is not played.
    """
    rows, told = result.answered, bursts_told or BurstAnswer()
    fastest = min((row for row in rows if row.size_bytes == rows[-1].size_bytes), key=lambda row: row.time_us)
    last = rows[-1].size_bytes
    play, unplayed = _play(details, followed)
    sure = next((each.chance for each in result.fastest if each.size_bytes == last), None)
    unlike = any(each.size_bytes == last for each in result.unlike)
    return html.render(
        "simulated.html.j2",
        parts=("elements", "player", "page_player"),
        title=f"{result.collective} on {result.fabric}",
        ground=f"simulated by {probable.models(rows)}; {result.link_model} links",
        figures=[
            ("Ranks", format_count(result.ranks)),
            ("Algorithms", str(len(details))),
            ("Largest size", format_size(rows[-1].size_bytes)),
            ("Fastest there", "not alike: see notes" if unlike else fastest.algorithm),
            ("Shortest time" if unlike else "Its time", f"{time(fastest.time_us)} us"),
            *((("Sure", f"{sure:.0%}"),) if sure is not None else ()),
            ("Its busbw", f"{fastest.busbw_gbs:.1f} GB/s"),
        ],
        faults="; ".join(fault_costs(result, [row for row in rows if row.size_bytes == last])),
        curves=pictures.curves(rows),
        notes=[
            *filter(None, [result.bound_ground]),
            *result.notes,
            *(
                f"{each.algorithm}: models disagree by more than twice: {probable.disagreement(each)}"
                for each in result.disagreements
            ),
            *(f"{name} declined: {why}" for name, why, _ in declined(result)),
            *ended(result),
            *(
                f"{row.algorithm} at {format_size(row.size_bytes)}: {unaffected(each)}"
                for row in rows
                if row.size_bytes == last
                for each in row.unaffected
            ),
        ],
        times=_times(rows),
        limits=_limits(rows),
        loads=[_load(detail) for detail in details],
        pictures=[_picture(detail) for detail in details],
        play=play,
        unplayed=unplayed,
        data=html.script_data({"play": play}),
        grounds=[f"{name}: {line}" for name, line in probable.ground(result)],
        provenance=result.provenance or "Rates and latencies are those of the file.",
        bursts=bursts.page(told.bursts, told.bursts_unknown, burst_title(told.bursts)),
        left_out=result.left_out,
        command=command,
    )


def _play(
    details: list[Detail], followed: Sequence[FollowedRun | tuple[str, str]]
) -> tuple[player.Play | None, list[str]]:
    """Return what the page plays on the machine that its algorithms ran on, and what it leaves out."""
    machine = next((detail.run.machine for detail in details if detail.run.machine is not None), None)
    if machine is None:
        return None, [f"not played: {each[0]} ({each[1]})" for each in followed if isinstance(each, tuple)]
    return player.play(machine.topology, followed)


def _times(rows: list[SimulatedRow]) -> tables.PageTable:
    columns = [
        "Algorithm",
        "Size",
        "Time us",
        "5 % below us",
        "5 % above us",
        "algbw GB/s",
        "busbw GB/s",
        "Bound us",
        "At the ranks us",
        "Of bound",
    ]
    cells = [
        [
            tables.text(row.algorithm),
            tables.size(row.size_bytes),
            tables.number(row.time_us, time),
            *(
                tables.text("none") if end is None else tables.number(end, time)
                for end in (row.time_us_p05, row.time_us_p95)
            ),
            tables.number(row.algbw_gbs, _two),
            tables.number(row.busbw_gbs, _two),
            tables.number(row.lowest_bound_us, time),
            tables.number(row.bound_at_ranks_us, time),
            tables.share(row.lowest_bound_us / row.time_us if row.time_us else 0.0),
        ]
        for row in rows
    ]
    return tables.table("times", "Every size", columns, cells)


def _limits(rows: list[SimulatedRow]) -> tables.PageTable:
    columns = [
        "Algorithm",
        "Size",
        "Ran as",
        "Engine",
        "Busiest link",
        "Busy",
        "Waiting for links",
        "Messages in a row",
        "Events",
    ]
    cells = [
        [
            tables.text(row.algorithm),
            tables.size(row.size_bytes),
            tables.text(row.choice),
            tables.text(row.engine),
            tables.text(row.bottleneck),
            tables.share(row.utilisation),
            tables.share(row.waited),
            tables.number(row.messages, _none),
            tables.count(row.events),
        ]
        for row in rows
    ]
    return tables.table("limits", "Size by size", columns, cells)


def _load(detail: Detail) -> dict[str, Any]:
    return {
        "algorithm": detail.name,
        "size": format_size(detail.program.collective.size_bytes),
        "bars": pictures.load(detail.load),
        "path": detail.path,
    }


def _picture(detail: Detail) -> dict[str, Any]:
    picture = pictures.steps(detail.program)
    note = "too many ranks or messages to draw" if picture is None else ""
    if picture is not None and picture.shown < picture.steps:
        note = f"first {picture.shown} of {picture.steps} steps"
    return {"algorithm": detail.name, "picture": picture, "note": note}


def _two(value: float) -> str:
    return f"{value:.2f}"


def _none(value: float) -> str:
    return f"{value:,.0f}"
