"""The least networks: what to buy, the step with it and at its edge, one failed optic, bursts, and which link buys how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.steps.jobs import milliseconds

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.advise.provision.document import BufferRow, NetworkRow, ProvisionDocument, ProvisionRow

GBITS = 8.0  # Gb/s of a GB/s
LEAST_CHANGE = 5e-5  # of a step, that is shown
FIRST = ("workload on fabric",)


def write(result: ProvisionDocument, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.provision/1`` for a terminal."""
    out = layout.console(file, width=width)
    share = layout.percent(result.within)
    for row in result.rows:
        if row.fits is False:
            layout.line(out, f"does not fit, {_name(row)}: {row.too_large}", style="bold yellow", indent=0)
    layout.line(
        out, f"the least network that keeps a step within {share} of {result.reference}", style="bold", indent=0
    )
    rows = [row for row in result.rows if row.nic_gbs is not None]
    if rows:
        _networks(out, rows)
        _steps(out, rows)
        _edges(out, rows)
        _optics(out, rows)
        _bursts(out, rows)
        _sensitivity(out, rows)
    _refused(out, result.rows)
    layout.heading(out, "Assumed")
    for each in result.assumptions:
        layout.line(out, each)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result.left_out))
    written = [row for row in rows if row.export is not None]
    if written:
        layout.heading(out, "Written", "recommended networks as fabrics, for --topology, each read back")
        for row in written:
            layout.line(out, f"{_name(row)}: {row.export}")


def _name(row: ProvisionRow) -> str:
    """Return workload and fabric, of a file its own name."""
    workload = row.workload if row.parallel else Path(row.workload).name
    return f"{workload} on {row.fabric}"


def _networks(out: Console, rows: list[ProvisionRow]) -> None:
    priced = any(row.cost is not None for row in rows)
    layout.heading(
        out, "Network", "in brackets as given; oversubscription: what all ports send over what a tier carries"
    )
    columns = ["NICs a GPU", "Gb/s each", "oversubscription", "buffer", "rails", "cables Tb/s"] + ["cost"] * priced
    layout.table(
        out,
        (*FIRST, *columns),
        [(_name(row), *_network(row), *([_cost(row)] if priced else [])) for row in rows],
        left=(*FIRST, "oversubscription"),
    )
    for row in rows:
        if row.parallel:
            held = row.peak_memory_bytes
            memory = f", {format_size(held)} of memory a GPU" if held is not None else ""
            layout.line(out, f"{_name(row)}: {row.parallel} on {row.gpus} GPUs{memory}", style="dim")


def _network(row: ProvisionRow) -> tuple[str | None, ...]:
    given = row.given
    assert given is not None  # noqa: S101 - rows with a network have one
    rate, size = row.nic_gbs or 0.0, row.cable_gbits or 0.0
    return (
        f"{row.nics_per_gpu:.3g} ({given.nics_per_gpu:.3g})",
        f"{_gbits(rate)} ({_gbits(given.nic_gbs)})",
        _tiers(row.oversubscription or {}, given),
        "-" if row.buffer_bytes is None else format_size(row.buffer_bytes),
        None if row.rails is None else str(row.rails),
        f"{size / 1e3:.3g} ({given.cable_gbits / 1e3:.3g})",
    )


def _tiers(ratios: dict[str, float], given: NetworkRow) -> str:
    own = given.oversubscription
    return ", ".join(f"{name} {ratio:.3g} ({own[name]:.3g})" for name, ratio in ratios.items()) or "no tier"


def _cost(row: ProvisionRow) -> str:
    own, cost = row.given.cost if row.given is not None else None, row.cost
    return f"{'-' if cost is None else f'{cost:,.6g}'} ({'-' if own is None else f'{own:,.6g}'})"


def _gbits(gbs: float) -> str:
    return f"{gbs * GBITS:.4g}"


def _more(row: ProvisionRow, step_us: float | None) -> str | None:
    reference = row.reference_us
    return None if step_us is None or not reference else f"{100 * (step_us / reference - 1):+.1f} %"


def _steps(out: Console, rows: list[ProvisionRow]) -> None:
    layout.heading(
        out,
        "Step in ms",
        "simulated; recommended: on the network above; as given: what it is compared with",
    )
    likely = any(row.step_us_p50 is not None for row in rows)
    drawn = any(row.longer_p50 is not None for row in rows)
    columns = ["as given", "recommended", "longer by", *(["of 90 % of draws"] * drawn), "network without limit"]
    likeliest = ["most probable as given", "recommended"] if likely else []
    layout.table(
        out,
        (*FIRST, *columns, *likeliest),
        [
            (
                _name(row),
                _ms(row.reference_us),
                _ms(row.step_us),
                _more(row, row.step_us),
                *([_drawn(row)] if drawn else []),
                _ms(row.unlimited_us),
                *(_likely_steps(row) if likely else []),
            )
            for row in rows
        ],
        left=FIRST,
    )


def _likely_steps(row: ProvisionRow) -> list[str | None]:
    return [
        _probable(row.reference_us_p05, row.reference_us_p50, row.reference_us_p95),
        _probable(row.step_us_p05, row.step_us_p50, row.step_us_p95),
    ]


def _ms(time_us: float | None) -> str | None:
    return None if time_us is None else milliseconds(time_us)


def _drawn(row: ProvisionRow) -> str | None:
    if row.longer_p05 is None or row.longer_p95 is None:
        return None
    return f"{100 * row.longer_p05:+.1f} to {100 * row.longer_p95:+.1f} %"


def _probable(low_us: float | None, middle_us: float | None, high_us: float | None) -> str | None:
    return None if middle_us is None else f"{_ms(middle_us)} ({_ms(low_us)} to {_ms(high_us)})"


def _edges(out: Console, rows: list[ProvisionRow]) -> None:
    """Show for each part the network that is one step smaller there."""
    layout.heading(
        out, "One step less", "simulated; each of these breaks the promise, unless it says why there is none"
    )
    told: list[tuple[str | None, ...]] = []
    for row in rows:
        tiers = row.oversubscription or {}
        for edge in row.edges or ():
            value = edge.value
            if value is None:
                idle = any(each.links == edge.what and not each.slower for each in row.sensitivity or ())
                said = "the least that is planned with" + ("; nothing waits for it" if idle else "")
                told.append((_name(row), edge.what, said, None, None))
                continue
            said = f"{_gbits(value)} Gb/s" if edge.what == "nic" else f"{value:.3g}" + ":1" * (edge.what in tiers)
            kept = " (kept, but it costs more)" if edge.keeps else ""
            told.append((_name(row), edge.what, said + kept, _ms(edge.step_us), _more(row, edge.step_us)))
        if row.buffers is not None:
            told.append((_name(row), "buffer", *_smaller_buffer(row, row.buffers)))
    layout.table(
        out, (*FIRST, "part", "one step less", "step ms", "longer by"), told, left=(*FIRST, "part", "one step less")
    )
    for row in rows:
        if row.buffers is not None:
            layout.line(out, f"{_name(row)}: {_queues(row.buffers)}", style="dim")


def _smaller_buffer(row: ProvisionRow, buffers: BufferRow) -> tuple[str | None, ...]:
    if buffers.buffer_bytes is None:
        return (buffers.why, _ms(buffers.step_us), _more(row, buffers.step_us))
    if buffers.smaller_bytes is None:
        return ("the least that is planned with", None, None)
    met = ", ".join(
        f"{count:,} {what}"
        for count, what in ((buffers.smaller_drops, "drops"), (buffers.smaller_pauses, "pauses"))
        if count
    )
    said = format_size(buffers.smaller_bytes) + (
        f": {buffers.smaller_why or met}" if buffers.smaller_why or met else ""
    )
    return (said, _ms(buffers.smaller_step_us), _more(row, buffers.smaller_step_us))


def _queues(buffers: BufferRow) -> str:
    """Say what was sent through queues, and what the recommended buffer costs."""
    parts = []
    for each in buffers.operations:
        whole = each.sent_bytes == each.size_bytes
        size = format_size(each.size_bytes) + ("" if whole else f" (as {format_size(each.sent_bytes)})")
        times = f" x {each.groups} groups at once" if each.groups > 1 else ""
        parts.append(f"{each.role} {each.op} {size}{times}")
    if not parts:
        return buffers.why
    kept = f"; step with that buffer {_ms(buffers.step_us)} ms" if buffers.buffer_bytes is not None else ""
    return f"by packets over {buffers.transport}: {', '.join(parts)}{kept}"


def _optics(out: Console, rows: list[ProvisionRow]) -> None:
    layout.heading(
        out, "One failed optic", "its cable at half of its rate; what all ports need so that the step keeps its promise"
    )
    told = []
    for row in rows:
        if (each := row.headroom) is not None:
            needs = "more than any port" if each.nic_gbs is None else f"{_gbits(each.nic_gbs)}"
            factor = None if each.factor is None else f"{each.factor:.3g}"
            told.append((_name(row), each.fault, _ms(each.step_us), _more(row, each.step_us), needs, factor))
    layout.table(out, (*FIRST, "fault", "step ms", "longer by", "needs Gb/s", "times"), told, left=(*FIRST, "fault"))


def _bursts(out: Console, rows: list[ProvisionRow]) -> None:
    rule = next((row.bursts.gap_rule for row in rows if row.bursts is not None), "")
    layout.heading(out, "Bursts of a NIC", f"on the recommended network; {rule}")
    told = []
    for row in rows:
        if (each := row.bursts) is not None:
            gap = each.gap_us_p50
            told.append(
                (
                    _name(row),
                    _size(each.size_bytes_p50),
                    _size(each.size_bytes_p99),
                    None if gap is None else f"{gap:,.4g}",
                    None if each.duty is None else layout.percent(each.duty),
                    _size(each.bytes_per_nic),
                )
            )
    columns = (*FIRST, "size p50", "size p99", "pause p50 us", "sends", "a step")
    layout.table(out, columns, told, left=FIRST)


def _size(size_bytes: float | None) -> str | None:
    return None if size_bytes is None else format_size(size_bytes)


def _sensitivity(out: Console, rows: list[ProvisionRow]) -> None:
    change = next((each.change for row in rows for each in row.sensitivity or ()), 0.0)
    layout.heading(
        out,
        "Which link buys how much",
        f"the step on the recommended network with a class {change * 100:.0f} % slower, or faster",
    )
    told = [
        (_name(row), each.links, _change(each.slower), _change(each.faster))
        for row in rows
        for each in row.sensitivity or ()
    ]
    layout.table(out, (*FIRST, "links", "slower", "faster"), told, left=(*FIRST, "links"))


def _change(share: float) -> str:
    return "0" if abs(share) < LEAST_CHANGE else f"{100 * share:+.2f} %"


def _refused(out: Console, rows: list[ProvisionRow]) -> None:
    without = [(row, row.declined) for row in rows if row.nic_gbs is None and row.declined]
    if without:
        layout.heading(out, "Not answered")
    for row, why in without:
        layout.line(out, f"{_name(row)}: {why}", style="yellow")
