"""What a job gains by switches that add: systems side by side, operation by operation, and what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.ground.units import format_size
from ringwright.reports import layout, tables

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.jobs.explained.obstacles import Obstacle
    from ringwright.jobs.switch_gains import JobInNetwork, OperationGain, SystemStep

MOST_OPERATIONS = 8
MOST_FIELDS = 2


def write(out: Console, told: JobInNetwork | None) -> None:
    """Write ``in_network`` of a ``ringwright.simulate-job/1`` object; nothing without it."""
    if not told:
        return
    layout.heading(out, "By who does the collectives", f"a step of {told.policy} in ms; + the network's switches add")
    table = [_row(each) for each in told.systems if each.declined is None]
    layout.table(out, ["system", "simulated", "exposed", "most probable", "90 % interval"], table, left=("system",))
    for each in told.systems:
        if each.declined is not None:
            layout.line(out, f"{each.system} declined: {each.declined}", style="yellow")
    layout.line(out, saved(told))
    _operations(out, told.operations)
    _obstacles(out, told.obstacles)


def _row(each: SystemStep) -> list[str]:
    name = f"{each.system} +" if each.in_network else each.system
    times = [_ms(each.step_us), _ms(each.exposed_comm_us)]
    if each.step_us_p50 is None:
        return [name, *times, "none", "none"]
    return [name, *times, _ms(each.step_us_p50), f"{_ms(each.step_us_p05)} to {_ms(each.step_us_p95)}"]


def saved(told: JobInNetwork) -> str:
    """Say what the best in the network saves of a step over the best of hosts alone."""
    if told.saved_us is None:
        return "nothing of this job is added by the network's switches"
    interval = ""
    if told.saved_us_p05 is not None:
        interval = f" ({_ms(told.saved_us_p05)} to {_ms(told.saved_us_p95)} where such steps take as much longer)"
    return f"{told.network} against {told.hosts}: {_ms(told.saved_us)} ms of a step{interval}"


def _operations(out: Console, operations: Sequence[OperationGain]) -> None:
    if not operations:
        return
    layout.heading(out, "What gains in the network", "us: one alone, and what of all is exposed in a step")
    table = [
        [
            named(each),
            each.op,
            format_size(each.size_bytes),
            f"{each.count:,.4g}",
            _us(each.hosts_us),
            _us(each.network_us),
            _us(each.exposed_hosts_us),
            _us(each.exposed_network_us),
            each.verdict,
        ]
        for each in operations[:MOST_OPERATIONS]
    ]
    head = ["operations", "op", "size", "count", "hosts", "network", "exposed", "then", "verdict"]
    layout.table(out, head, table, left=("operations", "op", "verdict"))
    layout.cut(out, min(MOST_OPERATIONS, len(operations)), len(operations), "kinds of operations")
    for verdict, why in dict.fromkeys((each.verdict, each.why) for each in operations if each.verdict != "gains"):
        layout.line(out, f"{verdict}: {why}", style="dim")


def named(operation: OperationGain) -> str:
    """Return the first name of operations that are alike, and how many more there are."""
    first, *more = operation.names
    return f"{first} and {len(more):,} more" if more else first


def _obstacles(out: Console, obstacles: Sequence[Obstacle]) -> None:
    if not obstacles:
        return
    layout.heading(out, "Six obstacles", "at the core, switches between hosts, and at the edge, switches inside hosts")
    for each in obstacles:
        fields = each.decided_by[:MOST_FIELDS]
        more = f", and {len(each.decided_by) - len(fields)} more" if len(fields) < len(each.decided_by) else ""
        style = {"in the way": "yellow"}.get(each.verdict, "")
        layout.line(out, f"{each.tier}, {each.obstacle}: {each.verdict}; {each.answer}", style=style)
        layout.line(out, f"by {', '.join(fields)}{more}", style="dim", indent=4)


# long: the columns of each table, with their words
def page_tables(told: JobInNetwork | None) -> list[tables.PageTable]:
    """Return the tables of a page: systems, operations and obstacles; none without them."""
    if not told:
        return []
    systems = [
        [
            tables.text(each.system),
            tables.text({True: "yes", False: "no", None: "not known"}[each.in_network]),
            *(
                tables.number(None if time_us is None else time_us / 1e3, _two)
                for time_us in (
                    each.step_us,
                    each.exposed_comm_us,
                    each.step_us_p50,
                    each.step_us_p05,
                    each.step_us_p95,
                )
            ),
            tables.text(each.declined or ""),
        ]
        for each in told.systems
    ]
    operations = [
        [
            tables.text(f"{named(each)}: {each.count:,.4g} of {each.op}, {format_size(each.size_bytes)}"),
            *(
                tables.number(time_us, _two)
                for time_us in (
                    each.hosts_us,
                    each.network_us,
                    each.exposed_hosts_us,
                    each.exposed_network_us,
                    each.gain_us,
                )
            ),
            tables.text(f"{each.verdict}: {each.why}"),
        ]
        for each in told.operations
    ]
    obstacles = [
        [
            *map(tables.text, (each.tier, each.obstacle, each.verdict, each.answer)),
            tables.text("; ".join(each.decided_by)),
        ]
        for each in told.obstacles
    ]
    made = [
        (
            "systems",
            f"By who does the collectives, {told.policy}: {saved(told)}",
            [
                "System",
                "In the network",
                "Simulated step ms",
                "Exposed ms",
                "Most probable ms",
                "5 % below",
                "95 % below",
                "Declined",
            ],
            systems,
        ),
        (
            "gains",
            "What gains in the network",
            [
                "Operations",
                "Hosts us",
                "Network us",
                "Exposed us",
                "Then us",
                "Gain us",
                "Verdict",
            ],
            operations,
        ),
        ("obstacles", "Six obstacles", ["Where", "Obstacle", "Verdict", "Answer", "Decided by"], obstacles),
    ]
    return [tables.table(*each) for each in made if each[3]]


def _ms(microseconds: float | None) -> str:
    value = (microseconds or 0.0) / 1e3
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.1f}" if abs(value) >= 100 else f"{value:.2f}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _two(value: float) -> str:
    return f"{value:,.2f}"
