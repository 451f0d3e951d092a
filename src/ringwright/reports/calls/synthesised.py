"""What a search for programs found, for a terminal: the programs, the cut that proves the bound, and everyone else's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringwright.calls.provenance import asked_of
from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls.fault_costs import write_faults

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.search.rivals import RivalRow
    from ringwright.search.runtime_files import WrittenRegions
    from ringwright.search.study import Synthesised

MOST_NODES = 24
MOST_RIVALS = 12
UNDONE = "by Ctrl-C: the best so far is shown; sizes, methods and algorithms whose turn had not come are left out"
NEAR, ALIKE = 1e-3, 5e-3  # gaps that are called so
VERIFIED = {True: "yes", False: "NO", None: "not run"}


def write(result: Synthesised, file: TextIO, *, width: int | None = None) -> None:
    """Write the tables of a search."""
    out = layout.console(file, width=width)
    question = result.question
    ranks = question.collective(0).p
    title = f"{question.op} on {question.topology.name}, {ranks:,} ranks, {question.link_model} links"
    layout.line(out, title, style="bold", indent=0)
    write_faults(out, asked_of(question.topology))
    _faults(out, result)
    columns = ["method", "size", "time us", "bound us", "gap", "algbw GB/s", "steps", "chunks", "trees", "height"]
    rows = [
        [
            row.method,
            format_size(row.size_bytes),
            f"{row.time_us:,.2f}",
            f"{row.bound_us:,.2f}",
            layout.percent(max(row.gap, 0.0)),
            f"{row.algbw_gbs:,.2f}",
            f"{row.steps:,}",
            f"{row.chunks:,}",
            row.trees,
            row.height,
            f"{row.synthesis_s:.2f}" + (" (kept)" if row.kept else ""),
            VERIFIED[row.verified],
        ]
        for row in result.rows
    ]
    layout.table(out, [*columns, "search s", "verified"], rows, left=("method",))
    for each in result.declined:
        layout.line(out, f"{each['method']} at {format_size(int(str(each['size_bytes'])))}: {each['reason']}")
        if each["remedy"]:
            layout.line(out, f"  try: {each['remedy']}", style="dim")
    if result.stopped:
        layout.line(out, f"stopped: {UNDONE}")
    elif any(row.stopped for row in result.rows):
        layout.line(out, "stopped: a search was ended before its work was done; the best so far is shown")
    _proof(out, result)
    _regions(out, result)
    _rivals(out, result)


def _faults(out: Console, result: Synthesised) -> None:
    if not result.faults:
        return
    layout.heading(
        out, "Re-plan or live with it?", "what was found without the fault, the same with it, and a new plan; gaps"
    )
    rows = [
        [
            format_size(each.size_bytes),
            f"{each.healthy_us:,.2f}",
            layout.percent(max(each.healthy_gap, 0.0)),
            "never ends" if each.kept_us is None else f"{each.kept_us:,.2f}",
            None if each.kept_gap is None else layout.percent(max(each.kept_gap, 0.0)),
            f"{each.replanned_us:,.2f}",
            layout.percent(max(each.replanned_gap, 0.0)),
        ]
        for each in result.faults
    ]
    layout.table(out, ["size", "healthy us", "gap", "kept us", "gap", "re-planned us", "gap"], rows)
    for each in result.faults:
        size = f"{format_size(each.size_bytes)}: " if len(result.faults) > 1 else ""
        layout.line(out, f"{size}{each.verdict}")


def sentence(result: Synthesised) -> str:
    """Return the answer in one sentence: who, what, how long, how far from what is possible, and beside whom."""
    row, question = result.largest, result.question
    asked = f"{format_size(row.size_bytes)} {question.op} on {question.topology.name}"
    near = "within 0.1 % of" if row.gap < NEAR else f"{layout.percent(row.gap)} above"
    beside = [each for each in result.rivals if each.size_bytes == row.size_bytes and each.time_us]
    others = [beside[0], *(each for each in beside[1:] if each.algorithm == "ring")] if beside else []
    said = "".join(f"; {_compared(row.time_us, each)}" for each in others)
    return f"{row.method}: {asked} in {row.time_us:,.2f} us, {near} what any program needs{said}"


def _compared(time_us: float, other: RivalRow) -> str:
    ratio = (other.time_us or 0.0) / time_us if time_us else 1.0
    if ratio < 1 - ALIKE:
        return f"{other.algorithm} is faster: {other.time_us:,.2f} us"
    return f"as fast as {other.algorithm}" if ratio < 1 + ALIKE else f"{ratio:.2f} times as fast as {other.algorithm}"


def write_files(written: WrittenRegions, file: TextIO, *, width: int | None = None) -> None:
    """Write which program went into which file, for which sizes, and how a runtime is told of them."""
    out = layout.console(file, width=width)
    if written.regions:
        layout.heading(out, "Written", "a call takes the program of its size")
        rows = [
            [each.algorithm, format_size(each.low), format_size(each.high) if each.high else "any", path.name]
            for each, path in zip(written.regions, written.paths, strict=False)
        ]
        layout.table(out, ["algorithm", "from", "below", "file"], rows, left=("algorithm", "file"))
        for each in written.regions:
            for why in each.passed_over:
                layout.line(out, why, style="dim")
    for hint in written.hints:
        layout.line(out, hint)
    for path in written.paths:
        print(f"wrote {path}", file=file)


def _proof(out: Console, result: Synthesised) -> None:
    row, topology = result.largest, result.question.topology
    proof = row.proof
    layout.heading(out, "The bound", f"of {format_size(row.size_bytes)}, by {row.bound_kind}")
    sets = proof.sets
    if proof.crossing and len(sets) == 1:
        size, rate = proof.demand_bytes, proof.capacity / 1e9
        layout.line(out, f"{size:,.0f} B must get {proof.crossing} these nodes, over {rate:,.6g} GB/s:")
        names = [topology.label(node) for node in sets[0]]
        more = f" and {len(names) - MOST_NODES:,} more" if len(names) > MOST_NODES else ""
        layout.line(out, ", ".join(names[:MOST_NODES]) + more)
    else:
        ends = [topology.label(each[0]) for each in sets] if proof.kind == "distance" and len(sets) == 2 else []
        layout.line(out, proof.ground + (f": {ends[0]} to {ends[1]}" if ends else ""))
    if row.routed_us is not None and row.routed_us > row.bound_us:
        over = layout.percent(max(row.time_us / row.routed_us - 1, 0.0))
        layout.line(
            out, f"along the machine's routes between these ranks it is {row.routed_us:,.2f} us, a gap of {over}"
        )


def _regions(out: Console, result: Synthesised) -> None:
    if not result.regions:
        return
    layout.heading(out, "The fastest at each size")
    rows = [
        [each["algorithm"], *(format_size(int(str(each[name]))) for name in ("from_bytes", "to_bytes"))]
        for each in result.regions
    ]
    layout.table(out, ["algorithm", "from", "to"], rows, left=("algorithm",))


def _rivals(out: Console, result: Synthesised) -> None:
    size = max((row.size_bytes for row in result.rivals), default=0)
    mine = [row for row in result.rivals if row.size_bytes == size]
    timed = [(row, row.time_us) for row in mine if row.time_us is not None]
    if not timed:
        return
    layout.heading(
        out, "Others", f"{format_size(size)}, same engine and links, no library's software; times the best above"
    )
    rows = [
        [row.algorithm, row.kind, f"{time_us:,.2f}", f"{row.ratio:.2f}x" if row.ratio else None]
        for row, time_us in timed[:MOST_RIVALS]
    ]
    layout.table(out, ["algorithm", "kind", "time us", "ratio"], rows, left=("algorithm", "kind"))
    layout.cut(out, MOST_RIVALS, len(timed), "algorithms")
    if len(mine) > len(timed):
        few = len(mine) - len(timed)
        layout.line(out, f"{few} {'has' if few == 1 else 'have'} no program here; --json says why", style="dim")
