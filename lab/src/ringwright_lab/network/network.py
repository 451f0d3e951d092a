"""A fabric of network namespaces that stands while a ``with`` block runs.

from ringwright_lab.network import network

with network("switch:4,rate=100Mb/s", ["link rank3 loss 1% at 2s"], seed=1) as net:
    ...                                # start a command behind each net.places[rank].command
    net.start_faults()                 # clock zero of the script
    ...
    print(net.counters()["rank3>switch"], net.limit())
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ringwright.execute.rank_host import Place
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.version import VERSION
from ringwright.model.topology import Topology
from ringwright_lab.network import bridges, bypass, leftovers, script, shaping, spec, verdict
from ringwright_lab.network.capture import Capture
from ringwright_lab.network.counters import CounterSample, Sampler
from ringwright_lab.network.fault_injector import FaultInjector
from ringwright_lab.network.namespaces import Inside, NamespaceDaemon, batches, check_tools, is_rootless, queues

TCP = ("reno", "cubic", "bbr")
HORIZON_S = 600.0
CARRIER_S = 5.0


class LabNetwork:
    """What stands. ``places`` and ``control`` hold a Place per rank, on the network under test and on the control network;

    ``switches`` a Place per switch, where they are to add. ``launcher`` is the place that reaches all ranks over the control
    network, outside the links under test. ``hops`` hold for each rank what the launcher puts before a command to start it there,
    in place of ssh.
    """

    def __init__(
        self,
        built: spec.LabSpec,
        asked: dict[str, Any],
        inside: list[Inside],
        injector: FaultInjector,
        sampler: Sampler,
        capture: Capture,
    ) -> None:
        self.spec, self.asked, self.capture = built, asked, capture
        self.topology: Topology = built.topology
        self.script = injector.script
        self._inside, self._injector, self._sampler = inside, injector, sampler
        ranks = range(built.n)
        self.places = tuple(
            Place(
                rank,
                spec.address(rank),
                "eth0",
                inside[rank].command,
                tuple(port.name for port in built.ports_of(rank)),
            )
            for rank in ranks
        )
        self.switches: tuple[Place, ...] = ()
        if asked["adds"]:
            self.switches = tuple(
                Place(node, spec.switch_address(built, node), "br0", inside[node].command)
                for node in range(built.n, built.topology.n_nodes)
            )
        self.control: tuple[Place, ...] = ()
        self.hops: tuple[tuple[str, ...], ...] = ()
        self.launcher: Place | None = None
        if asked["control"]:
            self.control = tuple(
                Place(rank, spec.control_address(rank), "ctl0", inside[rank].command) for rank in ranks
            )
            self.hops = tuple(inside[rank].hop for rank in ranks)
            self.launcher = Place(-1, spec.LAUNCHER_ADDRESS, "ctl0", inside[-1].command)

    def start_faults(self) -> float:
        """Let the script's clock start; return the monotonic time of its zero. What holds from the start holds on return."""
        if self._injector.zero_s:
            raise UsageError("the script has begun already", remedy="one start_faults() for each network")
        return self._injector.start()

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """What happened so far: ``t_wall_s``, ``t_mono_s``, ``event``; for faults ``script_s``, ``what``, ``late_s``."""
        return self.capture.timeline

    @property
    def failure(self) -> str:
        """Why the lab itself did not do what it was to do, or nothing."""
        return self._injector.failure or self._sampler.failure

    def counters(self) -> dict[str, int]:
        """Return the bytes that each directed link has carried so far, Ethernet headers counted."""
        sample = self._sampler.look()
        return {self.spec.link_name(link): size for link, size in enumerate(sample.size_bytes)}

    def dropped(self) -> dict[str, int]:
        """Return the frames for which each directed link's queue had no room, as the kernel's shaper counts them."""
        nodes = {port.node for port in self.spec.ports}
        told = {node: queues(self._inside[node]) for node in nodes}
        return {self.spec.link_name(port.link): told[port.node].get(port.name, 0) for port in self.spec.ports}

    def switched(self) -> dict[str, dict[str, int]]:
        """Return frames, lost, reordered and marked of each link that a switch in user space handles."""
        return self._sampler.look().switched

    @property
    def samples(self) -> list[CounterSample]:
        """Every look at the counters so far."""
        return list(self._sampler.samples)

    def limit(self, since_s: float = 0.0) -> verdict.Limit:
        """Return what limited the run since a monotonic time: ``.what`` is wire, cpu or unknown, ``.why`` says on what ground."""
        if self.failure:
            return verdict.unknown(f"the lab failed: {self.failure}")
        return verdict.judge([sample for sample in self.samples if sample.mono_s >= since_s])

    def environment(self, rank: int, port: int = 29500) -> dict[str, str]:
        """Return what a rank's process should find in its environment; every rank is a host of its own."""
        name = self.places[rank].interface
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.spec.n),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": spec.address(0),
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": name,
            "NCCL_SOCKET_IFNAME": name,
            "TP_SOCKET_IFNAME": name,
        }


@contextmanager
def network(
    fabric: str | Topology,
    faults: Iterable[str] = (),
    *,
    seed: int = 0,
    tcp: str = "reno",
    control: bool = False,
    adds: bool = False,
    xdp: bool = False,
    out: Path | None = None,
    rootless: bool | None = None,
    horizon_s: float = HORIZON_S,
    force: bool = False,
) -> Iterator[LabNetwork]:
    """Build a tree or ring of namespaces and give it for the length of a block; nothing stays behind, also after kill -9.

    ``fabric``: as in simulations, ``switch:4,rate=100Mb/s``. ``faults``: lines of the script (``ringwright.fabrics.faults`` and
    more, see ``script``); flapping is laid out up to ``horizon_s``. ``tcp``: reno, cubic or bbr. ``control``: also join all
    ranks and a launcher by a network without limits. ``adds``: give switches addresses, for programs that add; ``xdp``: let
    ranks take what the kernel of a switch sends. ``out``: a folder for the capture. ``rootless``: use a user namespace (None:
    unless root). Raises UsageError for fabrics and lines the lab has no way to do, InfeasibleError where the machine does not
    let it.
    """
    check_tools()
    built = spec.read(fabric)
    _check_tcp(tcp)
    if adds and built.is_routed:
        raise UsageError(
            "this fabric has no switch that could add", where=built.topology.name, remedy="switch:4,rate=100Mb/s"
        )
    fault_script = script.read(built, faults, horizon_s=horizon_s, seed=seed)
    asked = {
        "fabric": built.topology.name,
        "faults": list(fault_script.lines),
        "seed": seed,
        "tcp": tcp,
        "control": control,
        "adds": adds,
        "xdp": xdp,
        "rootless": is_rootless() if rootless is None else rootless,
    }
    leftovers.clean()
    with ExitStack() as stack:
        capture = Capture(out, force=force)
        stack.callback(capture.close)
        yield _built(stack, built, fault_script, asked, capture)


def _built(
    stack: ExitStack, built: spec.LabSpec, fault_script: script.Script, asked: dict[str, Any], capture: Capture
) -> LabNetwork:
    began_s = time.monotonic()
    claim = leftovers.Claim({"fabric": asked["fabric"], "out": str(capture.folder or "")})
    stack.callback(claim.release)
    (claim.folder / "hosts").write_text(_hosts(built, control=asked["control"]))
    base = {
        link for link, latency_s in enumerate(built.topology.latency_s.tolist()) if latency_s >= script.LEAST_LATENCY_S
    }
    if built.topology.loss is not None:
        base |= {link for link, loss in enumerate(built.topology.loss.tolist()) if loss}
    layout = bridges.layout(built, fault_script.impaired | base, adds=asked["adds"])
    merging = built.n if asked["xdp"] else 0
    if merging:
        bypass.check_shown(built, fault_script, layout.wires)
    nodes = _nodes(built, layout, fault_script, asked)
    daemon = NamespaceDaemon(nodes, claim.folder, rootless=asked["rootless"], merging=merging)
    stack.callback(daemon.close)
    _lay(built, layout, daemon, asked)
    switches = []
    for inside, switch, node in _programs(built, layout, daemon.inside):
        switches.append(bridges.UserSwitch(inside, switch, bridges.table(built, switch, node), asked["seed"]))
        stack.callback(switches[-1].close)
    injector = FaultInjector(built, fault_script, daemon.inside, switches, capture)
    injector.set_up(base)
    stack.callback(injector.close)
    sampler = Sampler(daemon.inside, injector, switches, capture)
    stack.callback(sampler.close)
    net = LabNetwork(built, asked, daemon.inside, injector, sampler, capture)
    capture.event("network ready", took_s=time.monotonic() - began_s, switches=[each.name for each in switches])
    capture.head(document(net))
    return net


def _check_tcp(tcp: str) -> None:
    if tcp not in TCP:
        raise UsageError(f"'{tcp}' is no congestion control of the lab", remedy=f"one of: {', '.join(TCP)}")
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if tcp not in offered:
        raise InfeasibleError(f"this kernel has no {tcp}", remedy=f"--tcp {offered[0]}")


def _hosts(built: spec.LabSpec, *, control: bool) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for rank in range(built.n):
        name = built.topology.label(rank)
        lines.append(f"{spec.address(rank)} {name}")
        if control:
            lines.append(f"{spec.control_address(rank)} {name}-control")
    if control:
        lines.append(f"{spec.LAUNCHER_ADDRESS} launcher")
    return "\n".join(lines) + "\n"


def _nodes(
    built: spec.LabSpec, layout: bridges.SwitchLayout, fault_script: script.Script, asked: dict[str, Any]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return name and settings of every namespace: the fabric's nodes, then wires, then the launcher."""
    settings = shaping.sysctls(asked["tcp"], is_routed=built.is_routed, ecn=fault_script.marks)
    names = [built.topology.label(node) for node in range(built.topology.n_nodes)]
    names += [layout.wires[link].name for link in sorted(layout.wires)]
    names += ["launcher"] if asked["control"] else []
    return [(name, settings) for name in names]


def _programs(
    built: spec.LabSpec, layout: bridges.SwitchLayout, inside: list[Inside]
) -> Iterator[tuple[Inside, bridges.SwitchNamespace, int | None]]:
    for node, switch in sorted(layout.switches.items()):
        yield inside[node], switch, node
    for at, link in enumerate(sorted(layout.wires)):
        yield inside[built.topology.n_nodes + at], layout.wires[link], None


def _lay(built: spec.LabSpec, layout: bridges.SwitchLayout, daemon: NamespaceDaemon, asked: dict[str, Any]) -> None:
    """Lay the cables, then give every namespace its addresses, rates and bridge."""
    inside, nodes = daemon.inside, built.topology.n_nodes
    wire_at = {link: nodes + at for at, link in enumerate(sorted(layout.wires))}
    cables = []
    for port in built.ports:
        back = built.ports[built.reverse[port.link]]
        if port.link in wire_at:
            wire = wire_at[port.link]
            for end, middle in zip((port, back), layout.wires[port.link].ports, strict=True):
                cables.append(shaping.cable(end, inside[end.node].pid, middle, inside[wire].pid))
        elif port.link < back.link:
            cables.append(shaping.cable(port, inside[port.node].pid, back, inside[back.node].pid))
    if asked["control"]:
        cables += [shaping.control_cable(rank, inside[rank].pid, inside[-1].pid) for rank in range(built.n)]
    batches([(inside[0], "ip", cables)])
    daemon.dress()
    work: list[tuple[Inside, str, list[str]]] = []
    for node in range(nodes):
        ports = built.ports_of(node)
        names = [port.name for port in ports]
        if node < built.n:
            lines = shaping.rank_lines(built, node, asked["tcp"])
            lines += shaping.control_rank_lines(node) if asked["control"] else []
        else:
            lines = shaping.bare_lines(names) if node in layout.switches else shaping.bridge_lines(names)
        lines += shaping.adding_lines(built, node) if asked["adds"] else []
        work += [(inside[node], "ip", lines), (inside[node], "tc", shaping.shaped(ports))]
    for link, node in wire_at.items():
        work.append((inside[node], "ip", shaping.bare_lines([port.name for port in layout.wires[link].ports])))
    if asked["control"]:
        work.append((inside[-1], "ip", shaping.launcher_lines(built.n)))
    batches(work)
    _wait_for_carriers(built, inside)


def _wait_for_carriers(built: spec.LabSpec, inside: list[Inside]) -> None:
    """Wait until the kernel has noticed that both ends of every cable are up."""
    end_s = time.monotonic() + CARRIER_S
    for port in built.ports:
        path = Path(f"/proc/{inside[port.node].pid}/root/sys/class/net/{port.name}/operstate")
        while time.monotonic() < end_s and path.exists() and path.read_text().strip() != "up":
            time.sleep(0.002)


def document(net: LabNetwork, **more: object) -> dict[str, Any]:
    """Return what ``lab.json`` holds."""
    topology = net.topology
    return {
        **net.asked,
        "outside_simulation": list(net.script.outside),
        "ranks": net.spec.n,
        "forwarding": "static routes" if net.spec.is_routed else "bridges",
        "provenance": "real: network namespaces on one machine",
        "nodes": [
            {"name": topology.label(node), "address": spec.address(node) if node < net.spec.n else None}
            for node in range(topology.n_nodes)
        ],
        "links": [
            {"name": net.spec.link_name(port.link), "rate_mbit_s": port.rate * 8e-6, "interface": port.name}
            for port in net.spec.ports
        ],
        "queue_bytes": shaping.QUEUE_BYTES,
        "versions": {"python": sys.version.split()[0], "kernel": platform.release(), "ringwright": VERSION},
        **more,
    }
