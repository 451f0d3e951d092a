"""What a lab cannot show where the kernels of its switches add: their sums pass queues and shapers of the way down by."""

from __future__ import annotations

from collections.abc import Collection

from ringwright.ground.errors import UsageError
from ringwright_lab.network.script import Script
from ringwright_lab.network.spec import LabSpec


def check_shown(spec: LabSpec, fault_script: Script, wires: Collection[int]) -> None:
    """Raise UsageError for a network or a script whose times would be those of a program on a socket alone.

    ``wires``: cables with a program in the middle, which loses or delays frames.
    """
    if wires:
        names = ", ".join(spec.link_name(link) for link in sorted(wires))
        raise UsageError(
            "what the kernel of a switch sends does not go through links that lose or delay frames",
            where=names,
            remedy="loss in the kernel and in the sockets of ranks: switchml:xdp=true:loss=0.01",
        )
    down = [port for port in spec.ports if port.node >= spec.n]
    slower = [port.link for port in down if port.rate < spec.ports[spec.reverse[port.link]].rate]
    changed = {row.target for row in fault_script.rows if row.kind == "link"}
    slower += [port.link for port in down if port.link in changed]
    if slower:
        raise UsageError(
            "what the kernel of a switch sends passes the rate of its link by, and only links towards it set the pace",
            where=", ".join(spec.link_name(link) for link in dict.fromkeys(slower)),
            remedy="a fault of the other direction, rank0>switch; or switchml without xdp",
        )
    if fault_script.flows:
        raise UsageError(
            "what the kernel of a switch sends does not queue behind a competing flow",
            where=fault_script.flows[0].text,
            remedy="the same without the flow, or switchml without xdp",
        )
