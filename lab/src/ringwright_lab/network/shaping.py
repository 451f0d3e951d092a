"""What ``ip`` and ``tc`` are told: cables, addresses, routes, rates. Text only; ``namespaces`` has it carried out.

Every end of a cable has an HTB class of the link's rate with a burst of 16 KiB over a FIFO of 256 KiB. HTB counts whole Ethernet
frames, so that TCP gets 1448 of 1514 bytes, 95.6 % of the rate.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringwright_lab.network.spec import (
    LAUNCHER_ADDRESS,
    LabSpec,
    Port,
    address,
    control_address,
    switch_address,
    switch_mac,
)

BURST_BYTES = 16 * 1024
QUEUE_BYTES = 256 * 1024
GOODPUT = 1448 / 1514
FIRST_NUMBER = 1000  # of interfaces; the kernel's own choices are small numbers


def bits(rate: float) -> str:
    """Return a rate in bytes/s as ``tc`` spells it."""
    return f"{max(8, round(rate * 8))}bit"


def rated(port: Port, rate: float, verb: str = "change") -> str:
    """Return the line of ``tc -batch`` that gives a port a rate in bytes/s."""
    limits = f"rate {bits(rate)} ceil {bits(rate)} burst {BURST_BYTES >> 10}k cburst {BURST_BYTES >> 10}k quantum 3028"
    return f"class {verb} dev {port.name} parent 1: classid 1:1 htb {limits}"


def queued(port: Port, size_bytes: int, verb: str = "change") -> str:
    """Return the line that gives a port a queue; one of 1 byte takes nothing, so that the link is dead."""
    return f"qdisc {verb} dev {port.name} parent 1:1 handle 10: bfifo limit {size_bytes}b"


def shaped(ports: list[Port]) -> list[str]:
    """Return the lines that set rates and queues up."""
    lines = []
    for port in ports:
        lines += [f"qdisc add dev {port.name} root handle 1: htb default 1", rated(port, port.rate, "add")]
        lines.append(queued(port, QUEUE_BYTES, "add"))
    return lines


def cable(here: Port, here_pid: int, there: Port, there_pid: int) -> str:
    """Return the line of ``ip -batch`` that lays a cable between two namespaces, named by processes in them.

    The first end gets a number that no other interface has: where both ends have the same, the kernel takes them for no pair,
    and tells a bridge of a carrier that came back only once a second.
    """
    ends = [f"name {port.name} address {port.mac} netns {pid}" for port, pid in ((here, here_pid), (there, there_pid))]
    return f"link add index {FIRST_NUMBER + max(here.link, 0)} {ends[0]} type veth peer {ends[1]}"


def rank_lines(spec: LabSpec, rank: int, tcp: str) -> list[str]:
    """Return the lines that give a rank its address, its neighbours and its routes."""
    ports = spec.ports_of(rank)
    lines = ["link set lo up", *(f"link set {port.name} gso_max_segs 1 up" for port in ports)]
    own, chosen = address(rank), f" congctl {tcp}" if tcp == "cubic" else ""
    if spec.is_routed:
        lines += [f"addr add {own}/32 dev {port.name}" for port in ports]
        return lines + list(_routes(spec, rank, chosen))
    name = ports[0].name
    lines += [f"addr add {own}/16 dev {name}", f"route replace 10.77.0.0/16 dev {name} scope link src {own}{chosen}"]
    for other in range(spec.n):
        if other != rank:
            lines.append(f"neigh add {address(other)} lladdr {spec.ports_of(other)[0].mac} dev {name} nud permanent")
    return lines


def _routes(spec: LabSpec, rank: int, chosen: str) -> Iterator[str]:
    for port in spec.ports_of(rank):
        mac = spec.ports[spec.reverse[port.link]].mac
        yield f"neigh add {address(port.peer)} lladdr {mac} dev {port.name} nud permanent"
    for other, port in spec.next_hops(rank).items():
        via = "" if other == port.peer else f" via {address(port.peer)}"
        onlink = " onlink" if via else " scope link"
        yield f"route add {address(other)}/32{via} dev {port.name}{onlink} src {address(rank)}{chosen}"


def bridge_lines(names: list[str]) -> list[str]:
    """Return the lines that make a switch of a namespace: one bridge with these ports."""
    lines = [
        "link set lo up",
        "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        "link set br0 up",
    ]
    return lines + [f"link set {name} gso_max_segs 1 master br0 up" for name in names]


def adding_lines(spec: LabSpec, node: int) -> list[str]:
    """Return the lines that let a node and the switches that add reach each other: a switch's bridge gets an address."""
    name = spec.ports_of(node)[0].name if node < spec.n else "br0"
    lines = []
    if node >= spec.n:
        lines = [f"link set br0 address {switch_mac(node)}", f"addr add {switch_address(spec, node)}/16 dev br0"]
        for rank in range(spec.n):
            lines.append(f"neigh add {address(rank)} lladdr {spec.ports_of(rank)[0].mac} dev br0 nud permanent")
    for switch in range(spec.n, spec.topology.n_nodes):
        if switch != node:
            lines.append(
                f"neigh add {switch_address(spec, switch)} lladdr {switch_mac(switch)} dev {name} nud permanent"
            )
    return lines


def bare_lines(names: list[str]) -> list[str]:
    """Return the lines for a namespace whose frames a program switches."""
    return ["link set lo up", *(f"link set {name} gso_max_segs 1 up" for name in names)]


def control_cable(rank: int, rank_pid: int, launcher_pid: int) -> str:
    """Return the line that joins a rank to the control network, which has no limits."""
    return f"link add index {FIRST_NUMBER * 2 + rank} name ctl0 netns {rank_pid} type veth peer name c{rank} netns {launcher_pid}"


def control_rank_lines(rank: int) -> list[str]:
    """Return the lines of a rank's end of the control network."""
    return [f"addr add {control_address(rank)}/16 dev ctl0", "link set ctl0 up"]


def launcher_lines(n: int) -> list[str]:
    """Return the lines of the launcher's namespace: the control network's bridge, with an address of its own."""
    lines = ["link set lo up", "link add ctl0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"]
    lines += [f"link set c{rank} master ctl0 up" for rank in range(n)]
    return [*lines, f"addr add {LAUNCHER_ADDRESS}/16 dev ctl0", "link set ctl0 up"]


def sysctls(tcp: str, *, is_routed: bool, ecn: bool) -> list[tuple[str, str]]:
    """Return the kernel's settings of a namespace, below /proc/sys/net, in the order they have to be written."""
    settings = [("ipv6/conf/default/disable_ipv6", "1"), ("ipv4/tcp_no_metrics_save", "1")]
    if tcp != "cubic":  # cubic is not on the list a namespace may choose from; it goes by route
        settings.append(("ipv4/tcp_congestion_control", tcp))
    if ecn:
        settings.append(("ipv4/tcp_ecn", "1"))
    if is_routed:
        settings.append(("ipv4/ip_forward", "1"))
        for which in ("all", "default"):
            settings += [(f"ipv4/conf/{which}/rp_filter", "0"), (f"ipv4/conf/{which}/send_redirects", "0")]
    return settings
