"""What a lab's run was and gave: ground, nodes, faults with their times, ranks, bytes per link, and what limited it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright_lab.network.lab_view import LabRun, ListedLab

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

SHOWN = 24  # faults; a flapping link has many
TAIL_LINES = 4


def write(lab: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.lab/1`` for a terminal."""
    result = read_json(LabRun, lab)
    out = layout.console(file, width=width)
    _ground(out, result)
    _nodes(out, result)
    _ranks(out, result)
    _faults(out, result)
    _links(out, result)
    layout.heading(out, "Verdict")
    style = {"wire": "green", "cpu": "bold red"}.get(result.limit.what, "yellow")
    layout.line(out, result.verdict, style=style)
    if result.limit.what == "cpu":
        busiest = f"{result.limit.busiest_name} used {result.limit.busiest_cores:.2f} cores"
        layout.line(out, f"busiest process: {busiest}; lower the rates or run fewer ranks", style="dim")


def _ground(out: Console, result: LabRun) -> None:
    ended = sum(1 for each in result.exits if not each.is_late)
    changes = [event for event in result.timeline if event.event in ("fault", "fault failed")]
    applied = sum(1 for event in changes if event.event == "fault")
    ground = f"real: {result.fabric}, {ended} of {result.ranks} ranks ended by themselves"
    faults = f"{applied} of {len(changes)} fault changes applied" if changes else "no faults"
    layout.line(out, f"{ground}, {faults}, seed {result.seed}", style="bold", indent=0)
    how = "in a user namespace" if result.rootless else "as root"
    versions = f"TCP {result.tcp}, {result.forwarding}, kernel {result.versions['kernel']}, {how}"
    layout.line(out, f"network namespaces on one machine, {versions}; capture in {result.out}", style="dim", indent=0)


def _nodes(out: Console, result: LabRun) -> None:
    layout.heading(out, "Nodes", "rates are of frames; TCP gets 95.6 % of them")
    rows = []
    for node in result.nodes:
        mine = [link for link in result.links if link.name.startswith(f"{node.name}>")]
        ports = ", ".join(f"{link.interface} {link.rate_mbit_s:g} Mbit/s" for link in mine)
        rows.append([node.name, node.address, ports])
    layout.table(out, ["node", "address", "ports"], rows, left=("node", "address", "ports"))


def _ranks(out: Console, result: LabRun) -> None:
    layout.heading(out, "Ranks")
    rows = [[each.rank, each.code, f"{each.took_s:.2f}", "time limit" if each.is_late else ""] for each in result.exits]
    layout.table(out, ["rank", "exit", "s", "why"], rows, left=("why",))
    worst = max(result.exits, key=lambda each: each.code)
    if worst.code and worst.tail.strip():
        layout.line(out, f"rank {worst.rank} said last:")
        for text in worst.tail.strip().splitlines()[-TAIL_LINES:]:
            layout.line(out, text, indent=4, style="dim")


def _faults(out: Console, result: LabRun) -> None:
    events = [event for event in result.timeline if event.event in ("fault", "fault failed")]
    if not events:
        return
    layout.heading(out, "Faults", "seconds since the ranks' start")
    rows = []
    for event in events[:SHOWN]:
        note = event.why if event.note is None else event.note
        at_s = f"{event.script_s:.3f}", "-" if event.took_s is None else f"{1e3 * event.took_s:.0f}"
        rows.append([*at_s, f"{event.what} ({note})" if note else event.what])
    layout.table(out, ["s", "took ms", "what"], rows, left=("what",))
    layout.cut(out, len(rows), len(events), "changes")
    if result.outside_simulation:
        lines = "; ".join(result.outside_simulation)
        layout.line(out, f"outside the simulation's model: {lines}", style="dim")


def _links(out: Console, result: LabRun) -> None:
    layout.heading(out, "Links", "bytes of frames sent, headers counted")
    rows = []
    for link in result.totals:
        switched = result.switched.get(link.name, {})
        rows.append(
            [
                link.name,
                format_size(link.bytes),
                link.packets,
                link.dropped,
                *(switched.get(name) for name in ("lost", "reordered", "marked")),
            ]
        )
    columns = ["link", "bytes", "frames", "queue full", "lost", "reordered", "marked"]
    layout.table(out, columns, rows, left=("link",))


def labs(listed: Sequence[dict[str, Any]], file: TextIO) -> None:
    """Write the labs of this user that live or were left; nothing at all where there are none."""
    if not listed:
        return
    out = layout.console(file)
    known = [read_json(ListedLab, each) for each in listed]
    alive = sum(1 for lab in known if lab.is_alive)
    layout.line(out, f"{alive} labs alive, {len(listed) - alive} left by killed ones", style="bold", indent=0)
    rows = [["alive" if lab.is_alive else "left", lab.pid, lab.fabric, lab.folder] for lab in known]
    layout.table(out, ["state", "pid", "fabric", "folder"], rows, left=("state", "fabric", "folder"))
    if len(listed) > alive:
        layout.line(out, "the next lab removes what was left", style="dim")
