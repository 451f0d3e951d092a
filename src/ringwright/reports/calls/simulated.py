"""What a simulation found: an nccl-tests table, or algorithms side by side; what limits each; what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_count, format_size, format_time
from ringwright.reports import bursts, layout
from ringwright.reports.calls import probable
from ringwright.reports.calls.fault_costs import MOST_COSTS, SAME, faults_asked

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.calls.job_ends import JobEnd
    from ringwright.calls.simulated_bursts import BurstAnswer, SimulatedBursts
    from ringwright.calls.simulated_document import SimulatedCalls, SimulatedRow
    from ringwright.calls.sums import SumsOf
    from ringwright.calls.unaffected import Unaffected

SLACK = 1.005  # times this close are called equal
SURE = 0.75  # chance from which on one is called faster
WIDE = 10  # columns of a time
TimeOf = Callable[["SimulatedRow"], float | None]


def write(
    result: SimulatedCalls, file: TextIO, *, width: int | None = None, bursts_told: BurstAnswer | None = None
) -> None:
    """Write the object of schema ``ringwright.simulate/1`` for a terminal, with bursts where they are given."""
    out = layout.console(file, width=width)
    rows = result.answered
    names = list(dict.fromkeys(row.algorithm for row in rows))
    ground = f"{result.collective} on {result.fabric}, {format_count(result.ranks)} ranks"
    models = f"by {probable.models(rows)}; " if rows else ""
    layout.line(out, f"simulated: {ground}, {models}{result.link_model} links", style="bold", indent=0)
    if result.arrivals and result.last_arrival_us is not None:
        last = time(result.last_arrival_us)
        layout.line(out, f"arrivals: {result.arrivals}; the last rank comes at {last} us", style="dim", indent=0)
    for other in result.beside:
        layout.line(out, f"beside: {other}, again and again", style="dim", indent=0)
    if result.provenance:
        layout.line(out, f"rates: {result.provenance}", style="dim", indent=0)
    for told in fault_costs(result, rows):
        layout.line(out, told, style="yellow", indent=0)
    _ended(out, result)
    if not rows:
        return
    if len(names) == 1 and len({row.algorithm for row in result.rows}) == 1:
        _alone(out, rows)
    else:
        _side_by_side(out, rows, list(dict.fromkeys(row.algorithm for row in result.rows)), result)
    _bounds(out, result)
    _declines(out, result)
    probable.write(out, result)
    for note in result.notes:
        layout.heading(out, "Not alike")
        layout.line(out, note, style="yellow")
    _faults(out, rows, names)
    _limits(out, rows, names)
    _sums(out, result.sums)
    if bursts_told is not None:
        told_bursts = bursts_told.bursts
        bursts.write(out, told_bursts, bursts_told.bursts_unknown, burst_title(told_bursts))
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result.left_out))


def ended(result: SimulatedCalls) -> list[str]:
    """Return how the job ends, a line for each algorithm and size that it ends with; how it ends is said once."""
    told: list[str] = []
    said: dict[str, str] = {}
    for row in result.refused:
        if (ends := row.ends) is None:
            continue
        who, size = row.algorithm, format_size(row.size_bytes)
        first = said.setdefault(f"{who} {ends.why}", size)
        well = f"; without faults {time(row.healthy_us)} us" if row.healthy_us else ""
        told.append(
            f"{who} at {size}: " + (in_words(ends) if first == size else f"the same after {_later(ends)}") + well
        )
    return told


def in_words(ends: JobEnd) -> str:
    """Return how a job ends: when, why, what the library prints, and why it does not go on."""
    words = f"the job ends after {_later(ends)}: {ends.why} ({ends.between})"
    words += f"; the library would print: {ends.prints}"
    return words + (f"; {ends.failover}" if ends.failover else "")


def _later(ends: JobEnd) -> str:
    return format_time(ends.at_us / 1e6)


def _ended(out: Console, result: SimulatedCalls) -> None:
    if told := ended(result):
        layout.heading(out, "The job ends")
    for each in told:
        layout.line(out, each, style="yellow")


def burst_title(told: SimulatedBursts | None) -> str:
    """Return the title of bursts: of which algorithm and size."""
    return "Bursts" if told is None else f"Bursts of {told['algorithm']} at {format_size(told['size_bytes'])}"


def _alone(out: Console, rows: list[SimulatedRow]) -> None:
    likely = has_interval(rows)
    columns = ["size", "time us", *(["90 % us"] if likely else []), "algbw GB/s", "busbw GB/s", "bound us", "of bound"]
    shared = rows[0].alone_us is not None
    faulty, late = any(row.worst_us is not None for row in rows), rows[0].after_last_us is not None
    layout.heading(out, rows[0].algorithm, "bandwidths as in nccl-tests")
    table = []
    for row in rows:
        rates = f"{row.algbw_gbs:.2f}", f"{row.busbw_gbs:.2f}"
        line = [format_size(row.size_bytes), time(row.time_us), *([interval(row)] if likely else [])]
        line += [*rates, time(row.lowest_bound_us), share(row)]
        line += [_known(row.after_last_us)] if late else []
        line += [_known(row.alone_us)] if shared else []
        table.append([*line, _worst(row)] if faulty else line)
    columns += ["after the last us"] if late else []
    columns += ["alone us"] if shared else []
    layout.table(out, [*columns, "worst moment us"] if faulty else columns, table)


def _known(time_us: float | None) -> str:
    return "-" if time_us is None else time(time_us)


def _worst(row: SimulatedRow) -> str:
    """Return the time at the worst moment, or that the job ends then."""
    return "job ends" if row.worst_us is None else time(row.worst_us)


def _side_by_side(out: Console, rows: list[SimulatedRow], names: list[str], result: SimulatedCalls) -> None:
    letters = _letters(out, names)
    sure = {each.size_bytes: each.chance for each in result.fastest if each.chance is not None}
    unlike = {each.size_bytes for each in result.unlike}
    told = f"; sure: chance that it beats the next; below {SURE:.0%} nobody can tell" if sure else ""
    layout.heading(out, "Time in us", f"the fastest of each size is starred{told}")
    _grid(out, rows, letters, _time_us, bound=True, sure=sure, unlike=unlike)
    if any(row.alone_us is not None for row in rows):
        layout.heading(out, "Time in us without the other jobs", "by the same engine")
        _grid(out, rows, letters, lambda row: row.alone_us, bound=False, unlike=unlike)
    if has_interval(rows):
        layout.heading(out, "90 % interval in us")
        _grid(out, rows, letters, _time_us, bound=False, said=interval)
    if any(row.after_last_us is not None for row in rows):
        layout.heading(out, "Time in us after the last rank came", "what could not be done before")
        _grid(out, rows, letters, lambda row: row.after_last_us, bound=False, unlike=unlike)
    if any(row.worst_us is not None for row in rows):
        layout.heading(out, "Time in us at the worst moment", "started when a fault sets in or ends")
        _grid(out, rows, letters, lambda row: row.worst_us, bound=False, unlike=unlike)


def _letters(out: Console, names: list[str]) -> dict[str, str]:
    """Return the heading of each algorithm: its name where all fit, else a letter, explained above the table."""
    if sum(max(len(name), WIDE) + 2 for name in names) + 30 <= out.width:
        return {name: name for name in names}
    letters = {name: chr(ord("A") + at) if at < 26 else str(at) for at, name in enumerate(names)}
    layout.heading(out, "Algorithms")
    for name, letter in letters.items():
        layout.line(out, f"{letter}  {name}")
    return letters


def _time_us(row: SimulatedRow) -> float:
    return row.time_us


def _grid(
    out: Console,
    rows: list[SimulatedRow],
    letters: dict[str, str],
    of: TimeOf,
    *,
    bound: bool,
    said: Callable[[SimulatedRow], str] | None = None,
    sure: Mapping[int, float] | None = None,
    unlike: Collection[int] = (),
) -> None:
    """``unlike``: sizes whose times have unlike kinds of software in them, at which nobody is starred."""
    table = []
    for size, group in groupby(sorted(rows, key=lambda row: row.size_bytes), key=lambda row: row.size_bytes):
        by_algorithm = {row.algorithm: row for row in group}
        times = {name: math.inf if (taken := of(row)) is None else taken for name, row in by_algorithm.items()}
        winner = by_algorithm[min(times, key=lambda name: times[name])]
        best_us = of(winner)
        starred = -math.inf if size in unlike or best_us is None else best_us * SLACK
        cells = [_cell(by_algorithm.get(name), of, starred, said) for name in letters]
        line = [format_size(size), *cells]
        line += [_sure(sure.get(size))] if sure else []
        busbw = None if size in unlike else f"{winner.busbw_gbs:.2f}"
        table.append([*line, time(winner.lowest_bound_us), busbw] if bound else line)
    columns = ["size", *letters.values(), *(["sure"] if sure else []), *(["bound", "busbw GB/s*"] if bound else [])]
    layout.table(out, columns, table)


def _sure(chance: float | None) -> str:
    """Return the chance that the fastest beats the next, marked where that tells nothing."""
    return "none" if chance is None else f"{chance:.0%}" if chance >= SURE else f"{chance:.0%}?"


def _cell(row: SimulatedRow | None, of: TimeOf, starred: float, said: Callable[[SimulatedRow], str] | None) -> str:
    if row is None:
        return "declines "
    if said is not None:
        return said(row)
    if (taken_us := of(row)) is None:
        return "job ends "
    return time(taken_us) + ("*" if taken_us <= starred else " ")


def declined(result: SimulatedCalls) -> list[tuple[str, str, list[int]]]:
    """Return who declined and why, with the sizes."""
    sizes_of: dict[tuple[str, str], list[int]] = {}
    for row in result.refused:
        if row.ends is None:
            sizes_of.setdefault((row.algorithm, row.declined), []).append(row.size_bytes)
    return [(name, why, sizes) for (name, why), sizes in sizes_of.items()]


def _bounds(out: Console, result: SimulatedCalls) -> None:
    """Print both bounds where they differ: what no program can beat, and what none that adds at the ranks can."""
    rows = {row.size_bytes: row for row in result.answered if row.lowest_bound_us != row.bound_at_ranks_us}
    if rows:
        layout.heading(out, "Bounds in us", result.bound_ground)
        cells = [
            [format_size(size), time(row.lowest_bound_us), time(row.bound_at_ranks_us)] for size, row in rows.items()
        ]
        layout.table(out, ["size", "bound", "at the ranks"], cells)


def _declines(out: Console, result: SimulatedCalls) -> None:
    told = declined(result)
    if told:
        layout.heading(out, "Declined")
    every = len({row.size_bytes for row in result.rows})
    for name, why, sizes in told:
        where = "" if len(sizes) == every else f" at {', '.join(map(format_size, sizes))}"
        layout.line(out, f"{name}{where}: {why}", style="yellow")


def _faults(out: Console, rows: Sequence[SimulatedRow], names: Sequence[str]) -> None:
    """Say which faults end the job at their worst moment, and why some cost nothing (at the largest size, if there too)."""
    if not any(row.worst_ends or row.unaffected for row in rows):
        return
    layout.heading(out, "Faults that end the job, or change nothing")
    for name in names:
        mine = [row for row in rows if row.algorithm == name]
        layout.line(out, f"{name}:")
        for end_row in (mine[0], mine[-1]) if len(mine) > 1 else mine:
            size = format_size(end_row.size_bytes)
            if end_row.worst_ends:
                moment = format_time(end_row.worst_start_s or 0.0)
                layout.line(out, f"{size}: begun {moment} later, {end_row.worst_ends}", indent=4)
            known = [each.fault for each in mine[-1].unaffected] if end_row is not mine[-1] else []
            for each in (each for each in end_row.unaffected if each.fault not in known):
                layout.line(out, f"{size}: {unaffected(each)}", style="yellow", indent=4)


def fault_costs(result: SimulatedCalls, rows: Sequence[SimulatedRow]) -> list[str]:
    """Return which faults act and what they cost each algorithm, at its smallest and its largest size; empty without faults."""
    told = faults_asked(result.asked)
    known = [row for row in rows if row.healthy_us]
    if known and all(abs(row.time_us / (row.healthy_us or 1.0) - 1) < SAME for row in known):
        return [*told, f"they change none of these times{_at_worst(known)}"]
    for name in list(dict.fromkeys(row.algorithm for row in known))[:MOST_COSTS]:
        mine = [row for row in known if row.algorithm == name]
        ends = (mine[0], mine[-1]) if len(mine) > 1 else mine
        told.append(f"{name}: {'; '.join(map(_beside_healthy, ends))}")
    return told


def _at_worst(rows: Sequence[SimulatedRow]) -> str:
    """Say what the faults cost whoever begins at their worst moment; empty where no moment is worse."""
    if any(row.worst_ends for row in rows):
        return "; begun at their worst moment the job ends"
    worst = max((row for row in rows if row.worst_us is not None), key=_worst_ratio, default=None)
    if worst is None or worst.worst_us is None or _worst_ratio(worst) < 1 + SAME:
        return ""
    size = format_size(worst.size_bytes)
    return f"; begun at their worst moment {worst.algorithm} takes {time(worst.worst_us)} us at {size}"


def _worst_ratio(row: SimulatedRow) -> float:
    return (row.worst_us or 0.0) / (row.healthy_us or 1.0)


def _beside_healthy(row: SimulatedRow) -> str:
    healthy_us = row.healthy_us or 1.0
    longer = row.time_us / healthy_us
    how = "as long as the" if f"{longer:.4g}" == "1" else f"{longer:.4g} times the"
    return f"{format_size(row.size_bytes)} takes {how} {time(healthy_us)} us without the faults"


def unaffected(each: Unaffected) -> str:
    """Return in words which fault costs nothing, and why."""
    return f"'{each.fault}' changes nothing: {each.why}"


def _limits(out: Console, rows: list[SimulatedRow], names: list[str]) -> None:
    """Say, at the smallest and the largest size, what each algorithm ran as and what it waited for."""
    layout.heading(
        out,
        "What limits it",
        "as the engine has it: busiest link, its share of the time; share spent waiting for links",
    )
    for name in names:
        mine = [row for row in rows if row.algorithm == name]
        layout.line(out, f"{name}:")
        for end_row in (mine[0], mine[-1]) if len(mine) > 1 else mine:
            how = end_row.choice or f"{end_row.messages:.0f} messages in a row"
            busy = f"{end_row.bottleneck or 'no link'} busy {100 * end_row.utilisation:.0f} %"
            waiting = f", waiting {100 * end_row.waited:.0f} %" if end_row.waited >= 0.005 else ""
            layout.line(out, f"{format_size(end_row.size_bytes)}: {how}; {busy}{waiting}", indent=4)
        layout.line(out, f"why: {mine[-1].why}", indent=4)


def _sums(out: Console, sums: Sequence[SumsOf]) -> None:
    """Say what sums are worth that switches make in a number format of their own."""
    if sums:
        layout.heading(out, "What the sums are worth", "of normal numbers, run through the program")
    for each in sums:
        counts = (("overflows", each.overflows), ("overwrites", each.overwrites), ("resent", each.resent))
        happened = [f"{count:,} {name}" for name, count in counts if count]
        off = f"off by {each.relative_rms:.1e} (rms of {format_size(each.size_bytes)})"
        layout.line(out, ", ".join((f"{each.algorithm}: in {', '.join(each.codecs)} {off}", *happened)))


def time(time_us: float) -> str:
    """Return microseconds with as many digits as matter."""
    return f"{time_us:,.0f}" if time_us >= 1000 else f"{time_us:.1f}" if time_us >= 10 else f"{time_us:.2f}"


def has_interval(rows: Sequence[SimulatedRow]) -> bool:
    """Return whether any time has an interval."""
    return any(row.time_us_p05 is not None for row in rows)


def interval(row: SimulatedRow) -> str:
    """Return the 90 % interval of a row."""
    return between(row.time_us_p05, row.time_us_p95)


def between(low_us: float | None, high_us: float | None) -> str:
    """Return the 90 % interval, "none" where nothing was measured."""
    return "none" if low_us is None or high_us is None else f"{time(low_us)} to {time(high_us)}"


def share(row: SimulatedRow) -> str:
    """Return how much of the time the bound explains."""
    return f"{100 * row.lowest_bound_us / row.time_us:.0f} %" if row.time_us else "-"
