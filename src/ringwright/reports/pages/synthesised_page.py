"""What a search for programs found as one HTML page: the answer, the machine and its cut, trees, loads, rivals, what next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.calls.message_playback import follow
from ringwright.ground.units import format_count, format_size
from ringwright.reports import html, tables
from ringwright.reports.calls.synthesised import UNDONE, VERIFIED, sentence
from ringwright.reports.calls.synthesised_next import following
from ringwright.reports.draw import pictures, player
from ringwright.reports.draw.load_picture import load_picture
from ringwright.reports.draw.machine_picture import pictures as machine_pictures
from ringwright.reports.draw.tree_maps import tree_maps
from ringwright.reports.layout import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.topology import Topology
    from ringwright.search.best_run import SeenProgram
    from ringwright.search.study import Synthesised

MOST_NAMES = 48


def synthesis_page(result: Synthesised, seen: SeenProgram, command: str, machine: Sequence[str]) -> str:
    """Return the page of a search; ``machine``: the words that name the machine on the command line."""
    row, question = seen.row, result.question
    drawn, left_out = machine_pictures(question.topology, seen.run, _cut(result))
    ranks = question.collective(0).p
    play, unplayed = _play(question.topology, seen)
    return html.render(
        "synthesised.html.j2",
        parts=("elements", "player", "page_player"),
        title=f"{question.op} on {question.topology.name}",
        answer=sentence(result),
        ground=_ground(result),
        alerts=_alerts(result),
        figures=[
            ("Time", f"{row.time_us:,.2f} us"),
            ("No program is below", f"{row.bound_us:,.2f} us"),
            ("Gap", percent(max(row.gap, 0.0))),
            ("algbw", f"{row.algbw_gbs:,.2f} GB/s"),
            ("Ranks", format_count(ranks)),
            ("Proved right", VERIFIED[row.verified]),
        ],
        machine=drawn,
        left_out=left_out,
        play=play,
        unplayed=unplayed,
        data=html.script_data({"play": play}),
        proof=_proof(result),
        trees=tree_maps(seen.program, question.topology, seen.trees),
        steps=None if seen.trees else pictures.steps(seen.program),
        load=None if seen.load is None else load_picture(seen.run, seen.load),
        unseen=seen.unseen,
        path=seen.run.path(),
        tables=[each for each in (_regions(result), _searched(result), _rivals(result)) if each.rows],
        declined=[
            f"{each['method']} at {format_size(int(str(each['size_bytes'])))}: {each['reason']}"
            for each in result.declined
        ],
        following=following(result, machine, refused=seen.refused),
        left=list(_left(result)),
        command=command,
    )


def _play(topology: Topology, seen: SeenProgram) -> tuple[player.Play | None, list[str]]:
    one = follow(seen.program.name, seen.program, seen.run)
    return player.play(topology, [(seen.program.name, one) if isinstance(one, str) else one])


def _cut(result: Synthesised) -> tuple[int, ...]:
    """Return the nodes that prove the bound, where it is one set of them or two ends."""
    proof = result.largest.proof
    if proof.crossing and len(proof.sets) == 1:
        return proof.sets[0]
    return tuple(node for ends in proof.sets for node in ends) if proof.kind == "distance" else ()


def _proof(result: Synthesised) -> str:
    row, topology = result.largest, result.question.topology
    proof = row.proof
    if not _cut(result):
        return f"By {row.bound_kind}: {proof.ground}"
    names = [topology.label(node) for node in _cut(result)]
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES]) + more
    if proof.kind == "distance":
        return f"By distance: {listed} are so far apart"
    return (
        f"By {row.bound_kind}: {proof.demand_bytes:,.0f} B must get {proof.crossing} these nodes, over "
        f"{proof.capacity / 1e9:,.6g} GB/s: {listed}"
    )


def _ground(result: Synthesised) -> str:
    engines = ", ".join(sorted({row.engine for row in result.rows}))
    model = result.question.link_model
    means = "free during its latency" if model == "pipelined" else "busy during its latency"
    return f"times of the {engines} engine with {model} links (a link is {means}), on the machine as it is at the start"


def _alerts(result: Synthesised) -> list[str]:
    row = result.largest
    told = []
    if result.stopped:
        told.append(f"Stopped {UNDONE}.")
    elif row.stopped:
        told.append("The search was stopped before its work was done: this is the best so far.")
    if row.verified is False:
        told.append("The program is NOT right: it breaks a rule, or ranks end without what they must hold.")
    if row.verified is None:
        told.append("Whether the program is right was not run: it has more moves than the interpreter follows.")
    lines = result.question.topology.fault_lines
    if lines:
        told.append(f"Faults: {', '.join(lines)}; slower links are dotted below.")
    told += [each.verdict for each in result.faults]
    return told


def _left(result: Synthesised) -> list[str]:
    ground = result.document()["ground"]
    left = ground["left_out"] if isinstance(ground, dict) else []
    return [*map(str, left), "whatever the event engine leaves out: packets, congestion control, switch buffers"]


def _searched(result: Synthesised) -> tables.PageTable:
    columns = ["Method", "Size", "Time us", "Bound us", "Gap", "algbw GB/s", "Steps", "Chunks", "Trees", "Height"]
    rows = [
        [
            tables.text(row.method),
            tables.size(row.size_bytes),
            tables.number(row.time_us, _two),
            tables.number(row.bound_us, _two),
            tables.number(row.gap, lambda gap: percent(max(gap, 0.0))),
            tables.number(row.algbw_gbs, _two),
            tables.count(row.steps),
            tables.count(row.chunks),
            tables.number(row.trees),
            tables.number(row.height),
            _hinted(tables.number(row.synthesis_s, _two), "kept from before" if row.kept else ""),
            tables.text(" ".join(filter(None, (VERIFIED[row.verified], "stopped" if row.stopped else "")))),
        ]
        for row in result.rows
    ]
    whole = "ringwright synthesise --json"
    return tables.table("searched", "What was searched", [*columns, "Search s", "Verified"], rows, whole=whole)


def _rivals(result: Synthesised) -> tables.PageTable:
    best = {size: min(row.time_us for row in result.rows if row.size_bytes == size) for size in result.programs}
    rows = [
        [
            tables.text(each.algorithm),
            tables.text(each.kind),
            tables.size(each.size_bytes),
            tables.number(each.time_us, _two),
            tables.number(each.ratio, lambda ratio: f"{ratio:.2f}x"),
            _hinted(tables.share(best.get(each.size_bytes, 0.0) / each.time_us), "time of the best over its own"),
        ]
        for each in result.rivals
        if each.time_us
    ]
    without = len(
        {each.algorithm for each in result.rivals} - {each.algorithm for each in result.rivals if each.time_us}
    )
    model = result.question.link_model
    title = f"Everyone else: same engine, {model} links" + (f"; {without} without a program here" if without else "")
    columns = ["Algorithm", "Kind", "Size", "Time us", "Over the best", "Of its speed"]
    return tables.table("rivals", title, columns, rows, whole="ringwright synthesise --json")


def _regions(result: Synthesised) -> tables.PageTable:
    rows = [
        [
            tables.text(each["algorithm"]),
            tables.size(float(str(each["from_bytes"]))),
            tables.size(float(str(each["to_bytes"]))),
        ]
        for each in result.regions
    ]
    return tables.table("regions", "The fastest at each size, of all that is known", ["Algorithm", "From", "To"], rows)


def _hinted(one: tables.Cell, hint: str) -> tables.Cell:
    return replace(one, hint=hint)


def _two(value: float) -> str:
    return f"{value:,.2f}"
