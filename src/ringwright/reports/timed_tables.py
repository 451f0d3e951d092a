"""What recordings with times add to the page and the terminal: who waited, kernels, overlap, bandwidths, culprits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis.summary_view import SeenBandwidth, SeenCulprit, SeenNormal, SeenSummary
from ringwright.ground.units import format_size, format_sizes
from ringwright.reports import layout
from ringwright.reports import overlap as account
from ringwright.reports.overlap import us
from ringwright.reports.tables import PageTable, count, number, share, size, table, text

if TYPE_CHECKING:
    from rich.console import Console

TOP = 8


# long: every table of times, in the order of the page
def all_tables(view: SeenSummary) -> dict[str, PageTable]:
    """Return the page's tables of timed recordings by name; those without rows are drawn by nobody."""
    waits = [
        [
            number(r.rank),
            number(r.wait_us, us),
            number(r.transfer_us, us),
            count(r.calls),
            count(r.last_count),
            number(r.caused_us, us),
        ]
        for r in view.waits
    ]
    kernels = [
        [text(r.name), text(r.kind), count(r.count), number(r.sum_us, us), number(r.union_us, us)] for r in view.kernels
    ]
    bandwidth = [
        [
            text(r.op),
            size(r.size_bytes),
            number(r.time_us, us),
            number(r.algbw_gbs, _gbs),
            number(r.busbw_gbs, _gbs),
            number(r.nranks),
            text(r.table),
        ]
        for r in view.bandwidth
    ]
    normal = [
        [
            text(r.op),
            size(r.size_bytes),
            *(number(value, _gbs) for value in (r.busbw_gbs, r.p05, r.p50, r.p95)),
            number(r.percentile, lambda v: f"{v:.0f} %"),
            text(_ground(r)),
            text(r.table),
        ]
        for r in view.normal
    ]
    culprits = [
        [text(r.kind), text(_ranks(r.ranks)), number(r.confidence, lambda v: f"{v:.2f}"), text(_because(r))]
        for r in _others(view)
    ]
    overlap = [
        [
            number(r.rank),
            number(r.comm_us, us),
            number(r.exposed_us, us),
            share(r.exposed_us / r.comm_us),
            number(r.compute_us, us),
            number(r.idle_us, us),
        ]
        for r in view.overlap.ranks
        if r.comm_us
    ]
    made = [
        table(
            "waits",
            "Waiting and transfer by rank",
            ["rank", "waited", "transfer", "calls", "was last", "waiting caused"],
            waits,
        ),
        table("kernels", "Kernels", ["name", "class", "count", "summed", "union"], kernels),
        table("bandwidth", "Bandwidth", ["op", "size", "time", "algbw", "busbw", "ranks", "of"], bandwidth),
        table(
            "normal",
            "Is it normal? Beside what such systems reach",
            ["op", "size", "busbw", "5 %", "50 %", "95 %", "slower systems", "ground", "of"],
            normal,
        ),
        table("culprits", "Who is to blame", ["kind", "ranks", "confidence", "evidence"], culprits),
        table(
            "overlap",
            "Communication hidden and exposed",
            ["rank", "communication", "exposed", "share", "compute", "idle"],
            overlap,
        ),
        *account.tables(view),
    ]
    return {one.name: one for one in made}


def write(out: Console, view: SeenSummary) -> None:
    """Write the same on a terminal, the first rows of each."""
    _culprits(out, view)
    if view.exposed_us is not None:
        layout.heading(out, "overlap", "communication kernels against compute kernels")
        layout.line(out, f"exposed {us(view.exposed_us)}, hidden {us(view.overlapped_us)}, all ranks summed")
        for reason in view.overlap.audit[:3]:
            layout.line(out, f"{us(reason.exposed_us)} exposed: {reason.reason}: {reason.advice}")
        account.write(out, view)
    rows = view.waits
    if rows:
        layout.heading(out, "waiting", "duration above the group's shortest; who comes last waits least")
        shown = sorted(rows, key=lambda r: -r.caused_us)[:TOP]
        layout.table(
            out,
            ("rank", "waited", "transfer", "calls", "was last", "caused"),
            [(r.rank, us(r.wait_us), us(r.transfer_us), r.calls, r.last_count, us(r.caused_us)) for r in shown],
        )
        layout.cut(out, TOP, len(rows), "ranks")
    _kernels(out, view)
    _bandwidth(out, view)


def _culprits(out: Console, view: SeenSummary) -> None:
    others = _others(view)
    if not others:
        return
    layout.heading(out, "who is to blame", "strongest first")
    for one in others[:TOP]:
        layout.line(out, f"{one.kind}: ranks {_ranks(one.ranks)}, confidence {one.confidence:.2f}", style="red")
        layout.line(out, f"because: {_because(one)}")


def _kernels(out: Console, view: SeenSummary) -> None:
    rows = view.kernels
    if not rows:
        return
    layout.heading(out, "kernels", "summed and as a union: streams overlap")
    layout.table(
        out,
        ("name", "class", "count", "summed", "union"),
        [(_short(r.name), r.kind, r.count, us(r.sum_us), us(r.union_us)) for r in rows[:TOP]],
        left=("name", "class"),
    )
    layout.cut(out, TOP, len(rows), "kernels")


def _bandwidth(out: Console, view: SeenSummary) -> None:
    rows = view.bandwidth
    if not rows:
        return
    layout.heading(out, "bandwidth", "GB/s, 10^9; sizes as nccl-tests counts them")
    largest = sorted(rows, key=lambda r: -(r.size_bytes or 0))[:TOP]
    texts = format_sizes(r.size_bytes for r in largest if r.size_bytes is not None)
    layout.table(
        out,
        ("op", "size", "time", "algbw", "busbw"),
        [
            (
                r.op,
                texts.get(r.size_bytes) if r.size_bytes is not None else None,
                us(r.time_us),
                _gbs(r.algbw_gbs),
                _bus(r),
            )
            for r in largest
        ],
    )
    layout.cut(out, TOP, len(rows), "sizes")
    _normal(out, view)


def _normal(out: Console, view: SeenSummary) -> None:
    """Show the largest sizes beside what such systems reach, and why there is nothing to compare with."""
    rows = view.normal
    is_benchmark = any(r.kind == "benchmark" for r in view.bandwidth)
    for why in view.normal_unknown if is_benchmark else []:
        layout.line(out, f"not compared with other systems: {why}")
    if not rows:
        return
    layout.heading(out, "is it normal", "busbw in GB/s beside 90 % of such systems; slower: the share of them that are")
    largest = sorted(rows, key=lambda r: -r.size_bytes)[:TOP]
    layout.table(
        out,
        ("op", "size", "busbw", "5 %", "50 %", "95 %", "slower"),
        [
            (
                *(r.op, format_size(r.size_bytes), _gbs(r.busbw_gbs), _gbs(r.p05), _gbs(r.p50)),
                *(_gbs(r.p95), f"{r.percentile:.0f} %"),
            )
            for r in largest
        ],
    )
    layout.cut(out, TOP, len(rows), "sizes")
    for said in dict.fromkeys(_ground(r) for r in largest):
        layout.line(out, said)


def _ground(row: SeenNormal) -> str:
    words = [f"{row.n_systems} such systems were measured"]
    words += [f"assumed {each}" for each in row.assumed]
    words += [f"none of them was like this in: {', '.join(row.outside)}"] if row.outside else []
    return "; ".join(words)


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"{name[:43]}…"


def _gbs(value: float | None) -> str:
    if value is None or value >= 0.005 or value <= 0:
        return "–" if value is None else f"{value:,.2f}"
    return f"{float(f'{value:.2g}'):.9f}".rstrip("0")  # slow, and not nothing


def _bus(row: SeenBandwidth) -> str:
    return "refused: law" if row.law else _gbs(row.busbw_gbs)


def _ranks(ranks: list[int] | None) -> str:
    if not ranks:
        return "cannot tell"
    shown = ", ".join(str(rank) for rank in ranks[:12])
    return shown if len(ranks) <= 12 else f"{shown} and {len(ranks) - 12} more"


def _others(view: SeenSummary) -> list[SeenCulprit]:
    """Return the culprits but the one that is the verdict: that stands at the head, with all its evidence."""
    verdict = view.verdict
    same = [one for one in view.culprits if verdict is not None and _is_alike(one, verdict)]
    return [one for one in view.culprits if not same or one is not same[0]]


def _is_alike(one: SeenCulprit, other: SeenCulprit) -> bool:
    return (one.kind, one.ranks, one.confidence) == (other.kind, other.ranks, other.confidence)


def _because(one: SeenCulprit) -> str:
    return "; ".join(one.evidence[:3])
