"""Whether switches added for a job: plug-in, leases, locks, communicators and their ranks, from its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.analysis.summary_view import SeenSummary
from ringwright.analysis.topology_view import AddedView, InNetworkView
from ringwright.reports import cuts, layout

if TYPE_CHECKING:
    from rich.console import Console

TOP_COMMUNICATORS = 4
TOP_UNKNOWN = 3
TOP_RANKS = 16
MOST_ON_PAGE = 50


def write(out: Console, view: SeenSummary) -> None:
    """Write what the log says of switches that add; nothing where it says nothing."""
    said = view.in_network
    if said is None:
        return
    layout.heading(out, "In the network", "CollNet, SHARP and NVLS, as the log tells them")
    for text in lines(said):
        layout.line(out, text)
    worst = _worst_first(said)
    for each in worst[:TOP_COMMUNICATORS]:
        layout.line(out, communicator(each), style="yellow" if each.state in _WARNED else "")
    layout.cut(out, min(TOP_COMMUNICATORS, len(worst)), len(worst), "communicators")
    for kept in said.unknown[:TOP_UNKNOWN]:
        layout.line(out, f"of no known form, {kept.lines:,} x: {kept.text}", style="dim")


def told_on_page(view: SeenSummary) -> list[str]:
    """Return what the HTML page says of switches that add, cut to its length; nothing where the log says nothing."""
    said = view.in_network
    if said is None:
        return []
    kept = [f"of no known form, {each.lines:,} x: {each.text}" for each in said.unknown]
    told = [*lines(said), *map(communicator, _worst_first(said)), *kept]
    more = [f"and {len(told) - MOST_ON_PAGE:,} more; all are in --json"] if len(told) > MOST_ON_PAGE else []
    return [cuts.short(text, 600) for text in told[:MOST_ON_PAGE]] + more


def _worst_first(said: InNetworkView) -> list[AddedView]:
    return sorted(said.communicators, key=lambda each: (_ORDER.index(each.state), -each.size))


_ORDER = ("partly", "refused", "silent fallback", "below the threshold", "connected", "not asked for")
_WARNED = _ORDER[:3]


def lines(said: InNetworkView) -> list[str]:
    """Return what holds of the whole job, in sentences."""
    told = [f"CollNet plug-in {each.name}, loaded by {_processes(each.processes)}" for each in said.plugins]
    if said.plugin_missing:
        told.append(f"no CollNet plug-in for {_processes(said.plugin_missing)}")
    leases = [f"{each.tree_type} {each.tree}{_osts(each.osts)}" for each in said.leases]
    if leases:
        told.append(f"leased: {', '.join(leases)}")
    for refused in said.refused:
        tree = f" (tree {refused.tree})" if refused.tree else ""
        who = f"ranks {_ranks(refused.ranks)}" if refused.ranks else f"hosts {', '.join(refused.hosts[:4])}"
        told.append(f"{refused.what}{tree}: {who}, {refused.lines:,} lines, first at {refused.first_at}")
    if said.nvls_available or said.nvls_not_available:
        total = said.nvls_available + said.nvls_not_available
        told.append(f"NVLS multicast on {said.nvls_available:,} of {total:,} devices")
    if said.nvls_refused:
        told.append(f"NVLS memory not bound by {_processes(said.nvls_refused)}")
    if said.lines_dropped:
        told.append(f"{said.lines_dropped:,} more lines about switches that add were counted, not kept")
    return told


def communicator(each: AddedView) -> str:
    """Return a communicator in words: its state, its ranks, why."""
    parts = [f"communicator {each.communicator} of {each.size:,}: {each.state}"]
    parts += [f"connected {_ranks(each.ranks_connected)}"] if each.ranks_connected else []
    parts += [f"refused {_ranks(each.ranks_refused)}"] if each.ranks_refused else []
    channels = ((each.collnet_channels, "CollNet"), (each.nvls_channels, "NVLS"))
    parts += [f"{count} {name} channels" for count, name in channels if count is not None]
    return f"{'; '.join(parts)}; {each.why}"


def _ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - TOP_RANKS:,} more" if len(ranks) > TOP_RANKS else ""
    return ", ".join(map(str, ranks[:TOP_RANKS])) + more


def _osts(count: int | None) -> str:
    return "" if count is None else f" with {count} operations outstanding"


def _processes(count: int) -> str:
    return f"{count:,} process" + ("es" if count != 1 else "")
