"""NCCL topology XML (``NCCL_TOPO_FILE``, ``NCCL_TOPO_DUMP_FILE``) and RCCL's version 2 with xGMI links.

The rates are those that NCCL computes from the file (src/graph/topo.h and xml.cc of 2.30.7; RCCL's topo.h for xGMI), in
decimal GB/s. Where hand-written files leave attributes to run time, so do the defaults here: a PCI device of class 0x03 is
a GPU, of class 0x02 a NIC; an unknown speed counts as Gen3, an unknown width as 16 lanes.

Left out: that GPU to GPU over Intel root complexes is charged 6/5, and the 5,000 GB/s inside a GPU.
Untrusted input: a document type, hence any entity, is refused; depth, elements and attributes are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from ringwright.formats.sources.topology.assembly import LATENCY_S, NIC, RANK, SWITCH, Parts
from ringwright.ground.errors import InputError
from ringwright.model.topology import Topology

# PCIe: 100 Mb/s per lane by the speed's text; GB/s = width * speed / 80.
PCI_SPEEDS = {
    "2.5": 15,
    "5": 30,
    "5.0": 30,
    "8": 60,
    "8.0": 60,
    "16": 120,
    "16.0": 120,
    "32": 240,
    "32.0": 240,
    "64": 480,
    "64.0": 480,
}
UNKNOWN_SPEED, UNKNOWN_WIDTH = 60, 16
NVLINK_GBS = ((60, 18.0), (70, 20.0), (80, 20.0), (86, 12.0), (90, 20.6), (100, 40.1))  # from this sm on
XGMI_GBS = (("906", 24.0), ("908", 24.0), ("910", 36.0), ("90a", 36.0), ("94", 48.0), ("95", 48.0))  # by gcn
UNKNOWN_XGMI_GBS = 24.0
NVSWITCH, CPU_BRIDGE = "0x068000", "0x068001"
MOST_DEPTH, MOST_ELEMENTS, MOST_ATTRIBUTES, LONGEST = 32, 20_000, 64, 4096
REMEDY = "a file that NCCL wrote itself: NCCL_TOPO_DUMP_FILE=topo.xml"


@dataclass
class TopologyElement:
    """An element, its attributes and where it stands."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[TopologyElement] = field(default_factory=list)

    def number(self, key: str, default: float = 0.0) -> float:
        """Return an attribute as a number, 0x.. read as hexadecimal; ``default`` where it is missing or none."""
        text = self.attributes.get(key, "")
        try:
            value = float(int(text, 16)) if text.lower().startswith("0x") else float(text)
        except (ValueError, OverflowError):
            return default
        return value if abs(value) < 1e15 else default

    def all(self) -> list[TopologyElement]:
        """Return this element and all below it, in the order of the file."""
        return [self, *(each for child in self.children for each in child.all())]


def read_nccl_xml(text: str, name: str, *, boxes: int = 1) -> Topology:
    """Return the hosts of a file (one, as a rule), or ``boxes`` of them whose NICs meet at one switch.

    Raises InputError with file and line where it is not XML, not a topology, or names no GPU.
    """
    root = parse(text, name)
    if root.tag == "graphs":
        raise InputError(
            f"{name} is an NCCL graph, not a topology", where=f"{name}:{root.line}", remedy="NCCL_TOPO_FILE"
        )
    if root.tag != "system":
        raise InputError(f"<{root.tag[:40]}> is no topology", where=f"{name}:{root.line}", remedy=REMEDY)
    system = _System(Parts(Path(name).stem), root)
    system.place()
    system.join()
    ground = "NCCL topology XML, rates as NCCL computes them, times assumed"
    if system.unknown:
        ground += f"; {system.unknown} links to themselves or to devices that are not in the file left out"
    if system.by_class:
        ground += "; GPUs told by their PCI class, their NVLinks are found at run time and not in the file"
    return system.parts.topology(boxes, ground)


def parse(text: str, name: str) -> TopologyElement:
    """Return the root element of untrusted XML."""
    stack: list[TopologyElement] = []
    roots: list[TopologyElement] = []
    count = 0
    parser = expat.ParserCreate()

    def refuse(what: str) -> None:
        raise InputError(f"{name}: {what}", where=f"{name}:{parser.CurrentLineNumber}", remedy=REMEDY)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) >= MOST_DEPTH or count > MOST_ELEMENTS or len(attributes) > MOST_ATTRIBUTES:
            refuse("more elements, levels or attributes than any machine has")
        if any(len(value) > LONGEST for value in attributes.values()):
            refuse("an attribute is too long")
        element = TopologyElement(tag, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = lambda *_: refuse("a document type is not allowed")
    try:
        parser.Parse(text.lstrip("\ufeff \t\r\n").encode(), True)
    except expat.ExpatError as error:
        where = f"{name}:{error.lineno}:{error.offset + 1}"
        raise InputError(f"{name} is not XML: {expat.ErrorString(error.code)}", where=where, remedy=REMEDY) from error
    return roots[0]


@dataclass
class _System:
    """A file on its way to parts: first all devices are placed, then what names others is joined."""

    parts: Parts
    root: TopologyElement
    unknown: int = 0
    by_class: bool = False
    gpus: list[tuple[TopologyElement, TopologyElement, int, int]] = field(
        default_factory=list
    )  # device, gpu, cpu, host
    cpus: list[tuple[TopologyElement, int, int]] = field(default_factory=list)  # element, node, host
    seen: dict[str, int] = field(default_factory=dict)  # GPUs by bus address
    pending: list[tuple[tuple[str, int], float, int]] = field(default_factory=list)  # GPU, rate, what is above it

    def place(self) -> None:
        hosts: dict[str, int] = {}
        for cpu in self.root.children:
            if cpu.tag != "cpu":
                continue
            host = hosts.setdefault(cpu.attributes.get("host_hash", ""), len(hosts))
            node = self.parts.node(("cpu", cpu.line, len(self.cpus)), SWITCH, f"cpu{len(self.cpus)}", host)
            self.cpus.append((cpu, node, host))
            for child in cpu.children:
                self._device(child, node, node, host)
        self._gpus()
        for number, (cpu, node, host) in enumerate(self.cpus):
            for other, there, its_host in self.cpus[:number]:
                if host == its_host:
                    self.parts.there_and_back(there, node, min(map(_socket_gbs, (cpu, other))) * 1e9, "upi")

    def _gpu(
        self, element: TopologyElement, gpu: TopologyElement, at: tuple[int, int], rate: float, above: int
    ) -> None:
        if not gpu.attributes or {"rank", "dev"} & gpu.attributes.keys():
            self.gpus.append((element, gpu, *at))
            self.pending.append((("gpu", len(self.gpus) - 1), rate, above))

    def _device(self, element: TopologyElement, above: int, cpu: int, host: int) -> None:
        if element.tag == "nic":
            self._nic(element, above, host)
        if element.tag != "pci":
            return
        rate = _pci_gbs(element) * 1e9
        inside = [child for child in element.children if child.tag == "gpu"]
        kind = element.attributes.get("class", "").lower()
        if inside or (kind.startswith("0x03") and not element.children):
            self.by_class |= not inside
            gpu = [*inside, TopologyElement("gpu", {}, element.line)][0]
            self._gpu(element, gpu, (cpu, host), rate, above)
            return
        nics = [child for child in element.children if child.tag == "nic"]
        if kind.startswith("0x02") and not element.children:
            nics = [TopologyElement("nic", {}, element.line, [TopologyElement("net", {}, element.line)])]
        if nics:
            for nic in nics:
                self._nic(nic, above, host, rate)
        elif kind.startswith("0x0604") or element.children:
            number = sum(name.startswith("pcie") for name in self.parts.names)
            node = self.parts.node(("pci", element.line, number), SWITCH, f"pcie{number}", host)
            self.parts.there_and_back(node, above, rate, "pcie")
            for child in element.children:
                self._device(child, node, cpu, host)

    def _nic(self, element: TopologyElement, above: int, host: int, rate: float = 12e9) -> None:
        for net in element.children:
            if element.tag != "nic" or net.tag != "net":
                continue
            number = len(self.parts.nic_rates)
            title = net.attributes.get("name") or f"nic{number}"
            speed = net.number("speed")
            node = self.parts.node(("net", number), NIC, title[:64], host)
            self.parts.nic_rates[node] = (speed if speed > 0 else 10_000.0) / 8000.0 * 1e9
            self.parts.there_and_back(node, above, rate, "pcie")

    def _gpus(self) -> None:
        """Number the GPUs: by rank where all have one, else in the order of the file."""
        ranked = all("rank" in gpu.attributes for _, gpu, _, _ in self.gpus)
        order = sorted(range(len(self.gpus)), key=lambda each: self.gpus[each][1].number("rank") if ranked else each)
        for rank, each in enumerate(order):
            device, _, _, host = self.gpus[each]
            node = self.parts.node(("gpu", each), RANK, f"gpu{rank}", host)
            self.seen[_bus(device.attributes.get("busid", ""))] = node
        for key, rate, above in self.pending:
            self.parts.there_and_back(self.parts.keys[key], above, rate, "pcie")

    def join(self) -> None:
        """Add what goes from GPU to GPU, to NVSwitches and to CPUs."""
        for number, (_, gpu, cpu, host) in enumerate(self.gpus):
            here = self.parts.keys["gpu", number]
            for link in gpu.children:
                if link.tag in ("nvlink", "xgmi"):
                    self._bundle(here, gpu, link, cpu, host)
                elif link.tag == "c2c":
                    rate = link.number("bw") * max(1.0, link.number("count", 1.0)) * 1e6
                    self.parts.there_and_back(here, cpu, max(rate, 0.0), "c2c")

    def _bundle(self, here: int, gpu: TopologyElement, link: TopologyElement, cpu: int, host: int) -> None:
        is_nvlink = link.tag == "nvlink"
        each = _nvlink_gbs(gpu.number("sm", 70)) if is_nvlink else _xgmi_gbs(gpu.attributes.get("gcn", ""))
        rate = min(max(link.number("count", 1.0), 0.0), 1e4) * each * 1e9
        kind = link.attributes.get("tclass", "").lower()
        target = self.seen.get(_bus(link.attributes.get("target", "")))
        if kind.startswith(CPU_BRIDGE):
            self.parts.there_and_back(here, cpu, rate, "nvlink")
        elif kind.startswith(NVSWITCH):
            hub = self.parts.node(("nvswitch", host), SWITCH, "nvswitch" if not host else f"nvswitch{host}", host)
            self.parts.there_and_back(here, hub, rate, "nvlink", LATENCY_S["nvlink"] / 2)
        elif target is not None and target != here:
            self.parts.one_way(here, target, rate, link.tag)
        else:
            self.unknown += 1


def _bus(text: str) -> str:
    """Return a bus address without leading zeros of its domain, which tools write differently."""
    return text.lower().lstrip("0")


def _pci_gbs(element: TopologyElement) -> float:
    text = element.attributes.get("link_speed", "").removesuffix(" PCIe").removesuffix("GT/s").strip()
    width = element.number("link_width")
    lanes = width if 0 < width <= 256 else UNKNOWN_WIDTH
    return lanes * PCI_SPEEDS.get(text, UNKNOWN_SPEED) / 80


def _nvlink_gbs(sm: float) -> float:
    return next((rate for first, rate in reversed(NVLINK_GBS) if sm >= first), NVLINK_GBS[0][1])


def _xgmi_gbs(gcn: str) -> float:
    version = gcn.lower().removeprefix("gfx")
    return next((rate for prefix, rate in XGMI_GBS if version.startswith(prefix)), UNKNOWN_XGMI_GBS)


def _socket_gbs(cpu: TopologyElement) -> float:
    """Between sockets, by vendor and model (topo.cc)."""
    vendor, model = cpu.attributes.get("vendor", ""), cpu.number("modelid")
    arch = cpu.attributes.get("arch", "")
    if arch == "ppc64":
        return 32.0
    if arch == "arm64":
        return 6.0
    if vendor == "AuthenticAMD":
        return 16.0
    if vendor == "GenuineIntel":
        return 40.0 if model >= 0xCF else 22.0 if model >= 0x8F else 10.0 if model >= 0x55 else 6.0
    if vendor in ("CentaurHauls", "  Shanghai  "):
        return 9.0 if cpu.number("familyid") == 7 and model == 0x5B else 6.0
    return 10.0
