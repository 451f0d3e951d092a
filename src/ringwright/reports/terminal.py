"""The summary on one or two screens of 80 columns, coverage first, every figure with its ground."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.analysis.document import Summary
from ringwright.analysis.summary_view import SeenHosts, SeenPair, SeenProvision, SeenSummary
from ringwright.ground.trace_tables import CHECKPOINT
from ringwright.ground.units import format_count, format_size, format_sizes, format_time
from ringwright.reports import adders, bursts, headline, layout, timed_tables, topology
from ringwright.reports.completion import absence, beside_the_verdict, complete, operation_rows, short_place, size_rows

if TYPE_CHECKING:
    from rich.console import Console

TOP_SIZES = 8
TOP_COMMUNICATORS = 8
TOP_PAIRS = 5
TOP_FINDINGS = 3
TOP_ERRORS = 3
TOP_TIMERS = 12
NAMED_AFTER = "named after "  # an operation, in the note of a timer
TIMER = "phase "  # before the name of a timer, among the claims
RATES = ("throughput", "tokens", "mfu")


def write(summary: Summary | SeenSummary, file: TextIO, *, width: int | None = None, following: str = "") -> None:
    """Write the summary report to ``file``; ``width`` in columns, ``following`` is the next command to suggest."""
    view = complete(summary)
    out = layout.console(file, width=width)
    layout.line(out, f"coverage: {view.coverage}", style="bold", indent=0)
    _answer(out, view)
    for loss in view.losses[:3]:
        layout.line(out, f"not all was read, counts are lower bounds: {loss}", style="yellow", indent=0)
    _verdict(out, view)
    _operations(out, view)
    _phases(out, view)
    _steps(out, view)
    _communicators(out, view)
    _algorithms(out, view)
    topology.write(out, view)
    adders.write(out, view)
    timed_tables.write(out, view)
    _traffic(out, view)
    bursts.write(out, view.bursts, view.bursts_unknown if view.operations else "")
    _provision(out, view)
    _ledger(out, view)
    _findings(out, view, following)
    _notes(out, view)


def text(summary: Summary | SeenSummary, *, width: int | None = None, following: str = "") -> str:
    """Return the summary report as plain text."""
    import io

    buffer = io.StringIO()
    write(summary, buffer, width=width, following=following)
    return buffer.getvalue()


def _size(size_bytes: float | None) -> str | None:
    return None if size_bytes is None else format_size(size_bytes)


def _answer(out: Console, view: SeenSummary) -> None:
    """Write the answer and the figures behind it; a summary that was kept without one has none."""
    if view.answer:
        headline.write(out, view.answer)


# branches: the words of a verdict by its kind
def _verdict(out: Console, view: SeenSummary) -> None:
    verdict = view.verdict
    if verdict:
        ranks = ", ".join(str(rank) for rank in verdict.ranks[:8])
        hosts = ", ".join(verdict.hosts[:4])
        layout.heading(out, f"verdict: {verdict.kind}", f"confidence {verdict.confidence}")
        layout.line(out, f"ranks {ranks or 'unknown'}; hosts {hosts or 'unknown'}", style="red")
        for number, item in enumerate(verdict.evidence):
            if number or not view.answer:  # the first is the answer
                layout.line(out, f"because: {item}" if number else item, style="" if number else "bold")
    told: set[Any] = set()
    said = "\n".join(verdict.evidence if verdict else [])
    for error in sorted(view.errors, key=lambda e: not e.first):
        if error.text in told or len(told) == TOP_ERRORS or str(error.text) in said:
            continue
        told.add(error.text)
        first = "first error" if error.first else "error"
        rank = error.rank
        who = f"rank {rank if rank is not None else 'unknown'} on {error.host or 'an unknown host'}"
        layout.line(
            out,
            f"{first}: {who}: {error.text} ({short_place(error.file, error.line)})",
            style="red",
        )


def _operations(out: Console, view: SeenSummary) -> None:
    layout.heading(out, "operations", "count = calls, once per communicator")
    reason = absence(view)
    if reason:
        layout.line(out, reason, style="yellow")
        return
    rows = operation_rows(view)
    layout.table(
        out,
        ("op", "min", "median", "max", "count", "records", "bytes", "share"),
        [
            (
                row.op,
                *map(_size, (row.min_bytes, row.median_bytes, row.max_bytes)),
                format_count(row.count),
                None if row.records is None else format_count(row.records),
                _size(row.bytes) or "unknown",
                layout.percent(row.share),
            )
            for row in rows
        ],
    )
    sizes = size_rows(view)
    texts = format_sizes(row.size_bytes for row in sizes[:TOP_SIZES])
    layout.heading(out, "sizes", "most bytes first")
    layout.table(
        out,
        ("size", "count", "op", "bytes", "share"),
        [
            (
                texts[r.size_bytes],
                format_count(r.count),
                r.op,
                format_size(r.bytes),
                layout.percent(r.share),
            )
            for r in sizes[:TOP_SIZES]
        ],
    )
    layout.cut(out, TOP_SIZES, len(sizes), "sizes")


def _phases(out: Console, view: SeenSummary) -> None:
    """Say what the job was doing meanwhile, where saving and loading is told apart from training."""
    rows = view.by_phase
    if not any(row.phase == CHECKPOINT for row in rows):
        return
    sums: dict[str, list[Any]] = {}
    for row in rows:
        entry = sums.setdefault(row.phase or "", [0, None, []])
        entry[0] += row.count or 0
        entry[1] = entry[1] if row.bytes is None else (entry[1] or 0) + row.bytes
        entry[2].append(row.op)
    layout.heading(out, "phases", "checkpoint: what torch.distributed.checkpoint sends to save and to load")
    ordered = sorted(sums.items(), key=lambda pair: (-(pair[1][1] or 0), pair[0]))
    layout.table(
        out,
        ("phase", "calls", "bytes", "operations"),
        [
            (phase, format_count(calls), _size(moved) or "unknown", ", ".join(dict.fromkeys(ops)))
            for phase, (calls, moved, ops) in ordered[:TOP_SIZES]
        ],
        left=("phase", "operations"),
    )
    layout.cut(out, TOP_SIZES, len(ordered), "phases")


def _steps(out: Console, view: SeenSummary) -> None:
    """Say how long steps took and what a trainer's own timers say, where nothing else of the recording has a time."""
    times = [step.time_s for step in view.iterations if step.time_s is not None]
    if view.operations or not times:
        return
    layout.heading(out, "steps", f"{format_count(len(times))} with a time")
    layout.line(
        out, f"{format_time(min(times))} to {format_time(max(times))}, {format_time(median(times))} in the middle"
    )
    timers = [claim for claim in view.claims if str(claim.field).startswith(TIMER)]
    timers.sort(key=lambda claim: NAMED_AFTER not in str(claim.note))
    if timers:
        rows = [(str(each.field).removeprefix(TIMER), each.value) for each in timers]
        layout.heading(out, "timers", "means; those named after an operation first")
        layout.table(out, ("timer", "time"), rows[:TOP_TIMERS], left=("timer", "time"))
        layout.cut(out, TOP_TIMERS, len(rows), "timers")
    for name in RATES:
        if told := next((claim for claim in view.claims if claim.field == name), None):
            layout.line(out, f"{name}: {told.value}")


def _communicators(out: Console, view: SeenSummary) -> None:
    roles = ", ".join(f"{name} {size}" for name, size in view.roles.items() if size is not None)
    layout.heading(out, "communicators", f"roles: {roles}" if roles else "roles: none inferred")
    listed = view.communicator_list
    if not listed:
        if not view.communicators:
            names = (
                "; the INIT subsystem names them: NCCL_DEBUG_SUBSYS=INIT,COLL"
                if ("nccl-log" in (view.kind or "nccl-log").split("+"))
                else ""
            )
            layout.line(out, f"none seen{names}", style="yellow")
            return
        layout.table(out, ("size", "count"), [(c.size, c.count) for c in view.communicators[:TOP_COMMUNICATORS]])
        return
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for item in listed:
        key = (item.size, item.role, item.ground)
        sums = kinds.setdefault(key, [0, 0, 0])
        for slot, amount in enumerate((1, item.operations or 0, item.bytes or 0)):
            sums[slot] += amount
    ordered = sorted(kinds.items(), key=lambda pair: (-pair[1][2], -(pair[0][0] or 0), str(pair[0])))
    layout.table(
        out,
        ("ranks", "communicators", "role", "calls", "bytes", "ground"),
        [
            (size, format_count(many), role or "unknown", format_count(calls), format_size(moved), ground or "-")
            for (size, role, ground), (many, calls, moved) in ordered[:TOP_COMMUNICATORS]
        ],
        left=("role", "ground"),
    )
    layout.cut(out, TOP_COMMUNICATORS, len(ordered), "kinds of communicator")


def _algorithms(out: Console, view: SeenSummary) -> None:
    rows = sorted(view.algorithms, key=lambda r: (r.op, r.size_bytes or 0))
    if not rows:
        return
    layout.heading(out, "algorithms", "as the source states them")
    layout.table(
        out,
        ("size", "count", "op", "algorithm", "protocol", "channels"),
        [
            (
                _size(r.size_bytes),
                r.count,
                r.op,
                r.algorithm,
                r.protocol,
                r.channels,
            )
            for r in rows[:TOP_SIZES]
        ],
        left=("op", "algorithm", "protocol"),
    )
    layout.cut(out, TOP_SIZES, len(rows), "rows")


def _traffic(out: Console, view: SeenSummary) -> None:
    pairs, hosts = view.pair_bytes, view.host_pair_bytes
    ground = ground_of(view)
    if not pairs and not hosts:
        return
    layout.heading(out, "who sends to whom", ground)
    both: tuple[tuple[str, Sequence[SeenPair | SeenHosts]], ...] = (("rank", pairs), ("host", hosts))
    for name, rows in both:
        if not rows:
            continue
        top = sorted(rows, key=lambda row: (-row.bytes, row.src, row.dst))[:TOP_PAIRS]
        layout.table(
            out,
            (f"from {name}", f"to {name}", "bytes"),
            [(row.src, row.dst, format_size(row.bytes)) for row in top],
            left=(f"from {name}", f"to {name}"),
        )
        layout.cut(out, TOP_PAIRS, len(rows), f"{name} pairs")


def ground_of(view: SeenSummary) -> str:
    """Return the line that says on what ground the byte matrix stands."""
    ground = view.pair_ground
    if not ground:
        return "ground not stated by the analysis"
    low, high = ground.low_bytes, ground.high_bytes
    span = f", range {format_size(low)} to {format_size(high)} in all" if low is not None and high is not None else ""
    kept = "" if ground.conserved else ", NOT conserved"
    return f"{ground.ground if ground.algorithm is None else ground.algorithm}{span}{kept}"


def burst_text(need: SeenProvision) -> str:
    """Return the largest burst and whose it is, the empty string where none is known."""
    size_bytes, of = need.largest_burst_bytes, need.largest_burst_of
    return "" if size_bytes is None else f"{format_size(size_bytes)} in calls of {of or 'all ranks'}"


def _provision(out: Console, view: SeenSummary) -> None:
    need = view.provision
    if not need:
        return
    layout.heading(out, "provisioning", need.note or "")
    steps, per_nic = need.steps, need.bytes_per_step_per_nic
    layout.line(out, f"steps: {steps if steps is not None else 'not found'}")
    layout.line(out, f"bytes per step and NIC: {_size(per_nic) or 'unknown (no NIC or no step was seen)'}")
    layout.line(out, f"largest burst: {burst_text(need) or 'unknown (no times in the input)'}")
    shares = sorted(need.share_per_op or [], key=lambda row: -row.share)[:4]
    if shares:
        layout.line(out, "share of bytes: " + ", ".join(f"{row.op} {layout.percent(row.share)}" for row in shares))


def _ledger(out: Console, view: SeenSummary) -> None:
    layout.heading(out, "ledger")
    counts = view.ledger
    layout.line(out, ", ".join(f"{name} {format_count(count)}" for name, count in counts.items()))
    for row in [r for r in view.ledger_detail if r.outcome == "refused"][:2]:
        where = short_place(row.file, row.example_line)
        layout.line(out, f"refused: {row.reason}, {format_count(row.lines or 0)} lines, first at {where}")


def _findings(out: Console, view: SeenSummary, following: str) -> None:
    findings = beside_the_verdict(view)
    if findings:
        layout.heading(out, "findings", f"{min(TOP_FINDINGS, len(findings))} of {len(findings)}")
    for finding in findings[:TOP_FINDINGS]:
        style = {"error": "red", "warning": "yellow"}.get(finding.severity or "", "")
        layout.line(out, f"{finding.severity or 'info'}: {finding.title}", style=style)
        if finding.detail:
            layout.line(out, finding.detail, indent=4)
        if finding.command:
            layout.command(out, finding.command)
    if following:
        layout.heading(out, "next")
        layout.command(out, following)


def _notes(out: Console, view: SeenSummary) -> None:
    for title, notes in (("warnings", view.warnings), ("what this cannot show", view.limits)):
        if notes:
            layout.heading(out, title)
        for note in notes[:6]:
            layout.line(out, f"- {note}")
        layout.cut(out, 6, len(notes), title)
