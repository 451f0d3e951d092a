"""Algorithms of a benchmark that a switch carries out, and the switches that stand while it runs."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.execute import launch
from ringwright.execute.rank_host import Place
from ringwright.execute.switched.serving import PORT, read_key
from ringwright.execute.switched.switch_process import AskedSwitch, started
from ringwright.execute.switched.terms import ALL_PORTS, SwitchTerms, WorkerPort
from ringwright.execute.switched.tree import SwitchSeat, seats
from ringwright.ground import drafts

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright_lab.bench.question import BenchSpec
    from ringwright_lab.network import LabNetwork

WIRE = "switch"


def lost_at_switches(question: BenchSpec, terms: SwitchTerms) -> float:
    """Return the share that switches lose which carry these terms out: the most that any of their jobs asks for."""
    return max(each.loss for each in question.through_switch.values() if each.xdp == terms.xdp)


@contextlib.contextmanager
def serving(question: BenchSpec, net: LabNetwork | None) -> Iterator[list[WorkerPort]]:
    """Have switches run, in the lab's switches or one on this machine, and give each rank's port. Nothing where none is asked."""
    if not question.through_switch:
        yield []
        return
    if net is not None:
        above, ranks = seats(net.topology)
        at = {each.rank: each for each in net.switches}
    else:
        from ringwright.fabrics import fabric

        above, ranks = seats(fabric(f"switch:{question.ranks}"))
        at = {above[0].node: Place(above[0].node)}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(launch.job_folder(elsewhere=True))
        key = folder / "key"
        drafts.write(key, secrets.token_hex(32))  # the folder is ours alone
        heard: dict[bool, dict[int, tuple[str, int]]] = {}  # where each switch listens, by whether its kernel adds
        for xdp in sorted({each.xdp for each in question.through_switch.values()}):
            heard[xdp] = stack.enter_context(_tree(question, above, at, key, xdp=xdp))
        usual, inside = heard.get(False, {}), heard.get(True, {})
        yield [
            WorkerPort(
                at[rank.node].address,
                usual[rank.node][1] if usual else 0,
                rank.number,
                read_key(key),
                xdp_port=inside[rank.node][1] if inside else 0,
            )
            for rank in ranks
        ]


@contextlib.contextmanager
def _tree(
    question: BenchSpec, above: list[SwitchSeat], at: dict[int, Place], key: Path, *, xdp: bool
) -> Iterator[dict[int, tuple[str, int]]]:
    """Have a switch run at each node, the root first; give where each listens."""
    asked = question.through_switch.values()
    carried = [each for each in asked if each.xdp == xdp]
    slots = max(each.slots for each in carried) * len(asked)
    loss = lost_at_switches(question, carried[0])
    port = (PORT + xdp) if question.lab else 0
    with contextlib.ExitStack() as stack:
        heard: dict[int, tuple[str, int]] = {}
        for seat in above:
            one = AskedSwitch(
                f"{at[seat.node].address}:{port}",
                seat.workers,
                slots,
                key,
                len(asked),
                loss,
                heard.get(seat.parent),
                seat.branch,
                ALL_PORTS if xdp else "",
            )
            heard[seat.node] = stack.enter_context(started(one, at[seat.node].command)).address
        yield heard
