"""Which machine a measured table was taken on, from what is written beside it: a call for the closed form, or why there is none.

The columns are those of ``*_cases.csv``: GPU, nodes, GPUs a node, links inside and between nodes, software, settings. What a
source does not say is taken from the usual node of its GPU, and a release from its year; both are assumptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ringwright.costs.learnt.call import LEARNT_OPS, LibraryCall
from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS, release_numbers, releases
from ringwright.costs.nccl.environment import EVERY_OP, lists_of
from ringwright.costs.nccl.graphs import NcclSystem
from ringwright.costs.nccl.names import algorithm_named, protocol_named
from ringwright.costs.nccl.node_types import NODE_TYPES, NodeType, system_of_nodes
from ringwright.costs.nccl.selection import NcclChoice, choose
from ringwright.costs.nccl.timing import NcclOverride, has_form
from ringwright.costs.transports import carrier
from ringwright.ground.errors import RingwrightError, UsageError

# The node type of a GPU, by the first name that is in the GPU's; Grace Hopper has none of its own: four GPUs, each with its NIC.
BASES = (
    ("GB300", "gb200"),
    ("GB200", "gb200"),
    ("GH200", "dgx-h100"),
    ("B300", "dgx-b200"),
    ("B200", "dgx-b200"),
    ("H200", "dgx-h100"),
    ("H100", "dgx-h100"),
    ("H800", "dgx-h100"),
    ("H20", "dgx-h100"),
    ("A100", "dgx-a100"),
    ("A800", "dgx-a100"),
    ("V100", "dgx1"),
    ("MI300", "mi300"),
    ("MI308", "mi300"),
    ("MI325", "mi300"),
    ("MI350", "mi300"),
    ("MI355", "mi300"),
)
SWITCHED = {"dgx1": "dgx2"}  # the node of the same GPUs behind an NVSwitch
XGMI_SHEET_GBS = 64.0  # of a link of an MI300X, each way: the data sheet beside what RCCL counts
LINK_RATE = re.compile(r"(\d{1,4}(?:\.\d+)?) ?GB/s a (?:pair|link) each way")
NICS = re.compile(r"(\d{1,4}(?:\.\d+)?) ?x ?(\d{1,5}(?:\.\d+)?) ?Gb/s")
DOMAIN = re.compile(r"domain of (\d{1,4})|\bNVL[ -]?(\d{2,4})\b")
RACK_GPUS = NODE_TYPES["gb200-nvl72"].gpus * NODE_TYPES["gb200-nvl72"].domain  # of a domain whose size is not said
MESH_GPUS = 4  # of a node whose GPUs are joined pair by pair
RELEASE_OF_YEAR = {"2022": "2.14", "2023": "2.18", "2024": "2.20", "2025": "2.26", "2026": "2.28"}
UNKNOWN_YEAR = "2.20"
SETTINGS = re.compile(r"\b(NCCL_(?:ALGO|PROTO|MIN_NCHANNELS|MIN_CTAS))=([^\s'\"]{1,200})")


def described(op: str, facts: Mapping[str, str], sizes_bytes: tuple[int, ...]) -> LibraryCall | str:
    """Return the call of an operation on the machine of a row of ``*_cases.csv`` at these sizes, or in words why it is none."""
    if op not in LEARNT_OPS:
        return f"{op or 'an operation without a name'} has no closed form; known: {', '.join(LEARNT_OPS)}"
    placed = machine(facts)
    if isinstance(placed, str):
        return placed
    release = modelled(release_of(facts.get("software", "")))
    try:
        override = _override(facts.get("settings", ""), op, sizes_bytes, placed[1], release)
    except RingwrightError as error:
        return error.what
    return LibraryCall(
        op,
        sizes_bytes,
        *placed,
        release,
        carrier(f"{facts.get('settings', '')} {facts.get('inter_node', '')}", "infiniband"),
        override,
        facts.get("system", ""),
        f"{facts.get('settings', '')} {facts.get('software', '')}",
        facts.get("case", ""),
    )


def machine(facts: Mapping[str, str]) -> tuple[NodeType, NcclSystem] | str:
    """Return the node and the system of a row of ``*_cases.csv`` as NCCL sees them, or in words why they are not known.

    Hosts of one NVLink domain are one node. Several domains share the hosts evenly, as few of them as hold all.
    """
    gpu, inside = facts.get("gpu", ""), facts.get("intra_node", "")
    base = next((name for part, name in BASES if part in gpu), None)
    if base is None:
        return f"the node type of the GPU '{gpu}' is not known; known: {', '.join(part for part, _ in BASES)}"
    hosts, per_host = _whole(facts.get("nodes")), _whole(facts.get("gpus_per_node"))
    if not hosts or not per_host or hosts * per_host < 2:
        return "it does not say its nodes and GPUs a node, or has one rank alone"
    if "NVSwitch" in inside or per_host > NODE_TYPES[base].gpus:
        base = SWITCHED.get(base, base)
    kind = _shaped(NODE_TYPES[base], facts, per_host)
    if not kind.nic_gbs:
        return f"its NICs have no rate: {facts.get('inter_node', '')}"
    domains = _domains(inside, hosts, per_host)
    joined = domains < hosts
    if joined:
        each = -(-hosts // domains)
        kind = replace(kind, gpus=each * per_host, nics=each * kind.nics, domain=1)
    ranks = hosts * per_host
    return kind, system_of_nodes(kind, domains, ranks=ranks, mnnvl=joined, name=facts.get("case", ""))


def _domains(inside: str, hosts: int, per_host: int) -> int:
    """Return how many NVLink domains hosts make up: a host is one by itself, where no words join it to others."""
    said = DOMAIN.search(inside)
    if said is None and "domain" not in inside:
        return hosts
    gpus = int(said[1] or said[2]) if said else RACK_GPUS
    return -(-hosts // max(1, gpus // per_host))


def _shaped(base: NodeType, facts: Mapping[str, str], per_node: int) -> NodeType:
    inside, between = facts.get("intra_node", ""), facts.get("inter_node", "")
    mesh = "all-to-all" in inside
    gpus = MESH_GPUS if mesh else base.gpus
    kind = replace(base, nvswitch=False, pair_links=base.nvlinks // (MESH_GPUS - 1)) if mesh else base
    if "GH200" in facts.get("gpu", ""):
        kind = replace(kind, cpu_vendor="other", cpu_arch="arm")
    if mesh:  # a GPU has no switch of its own with a NIC behind it
        kind = replace(kind, type_inter="PHB" if base.capability < 90 else "PIX")
    match = NICS.search(between)
    if "PCIe" in inside and not re.search("NVLink|NVSwitch|xGMI|Infinity", inside):
        kind = replace(kind, nvlinks=0, pair_links=0, nvswitch=False)
    rated = LINK_RATE.search(inside)
    if rated and base.link_gbs:
        kind = replace(kind, link_gbs=base.link_gbs * float(rated[1]) / XGMI_SHEET_GBS)
    nics, rate_gbs = (float(match[1]), float(match[2]) / 8) if match else (float(base.nics), base.nic_gbs)
    whole = nics * per_node if "a rank" in between or "a GPU" in between else nics * min(per_node, gpus) / gpus
    kind = kind.part(per_node) if per_node < kind.gpus else kind
    return replace(kind, gpus=per_node, nics=max(1, int(whole)), nic_gbs=rate_gbs)


@dataclass(frozen=True)
class AllowedByLists:
    """What the environment leaves an operation: algorithms and protocols (none: all), and how many channels at the least."""

    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]
    channels: int | None

    def single(self) -> NcclOverride | None:
        """Return what is forced, None for nothing; UsageError where a list leaves several: which of them ran is not said."""
        for name, left in (("NCCL_ALGO", self.algorithms), ("NCCL_PROTO", self.protocols)):
            if len(left) > 1:
                raise UsageError(f"{name} leaves {' and '.join(left)}: which of them ran is not said")
        if not (self.algorithms or self.protocols):
            return None
        algorithm, protocol = (left[0] if left else None for left in (self.algorithms, self.protocols))
        return NcclOverride(algorithm, protocol, self.channels)

    def holds(self, choice: NcclChoice) -> bool:
        """Return whether what NCCL takes by itself is among what is left."""
        return (not self.algorithms or choice.algorithm in self.algorithms) and (
            not self.protocols or choice.protocol in self.protocols
        )


def allowed(settings: str, op: str) -> AllowedByLists:
    """Return what the environment in the settings leaves an operation; UsageError for a word that is none of NCCL's."""
    said: dict[str, str] = dict(SETTINGS.findall(settings)) if op in OPS else {}
    channels: str = said.get("NCCL_MIN_NCHANNELS", said.get("NCCL_MIN_CTAS", ""))
    return AllowedByLists(
        _left(said.get("NCCL_ALGO", ""), op, algorithm_named, ALGORITHMS),
        _left(said.get("NCCL_PROTO", ""), op, protocol_named, PROTOCOLS),
        int(channels) if re.fullmatch("[0-9]{1,3}", channels) else None,
    )


def _left(value: str, op: str, named: Callable[[str], str | None], every: tuple[str, ...]) -> tuple[str, ...]:
    """Return which words a list leaves for an operation; none where it says nothing of it, or leaves all."""
    lists = lists_of(value, named, every)
    left = lists.get(op, lists.get(EVERY_OP, ()))
    return () if {*left} == {*every} else left


def forced(settings: str, op: str) -> NcclOverride | None:
    """Return what the environment in the settings forces on an operation, None for nothing; UsageError where it is not clear."""
    return allowed(settings, op).single()


def _override(
    settings: str, op: str, sizes_bytes: tuple[int, ...], system: NcclSystem, release: str
) -> NcclOverride | None:
    """Return what is forced of a call: lists change nothing where NCCL takes by itself what they leave, at every size.

    UsageError for what has no closed form, or where it is not clear.
    """
    left = allowed(settings, op)
    if max(len(left.algorithms), len(left.protocols)) > 1:
        free = {size: choose(op, size, system, release) for size in sizes_bytes}
        if all(map(left.holds, free.values())):
            return None
    told = left.single()
    if told and told.algorithm and not has_form(op, told.algorithm):
        raise UsageError(f"{told.algorithm} {op} has no closed form")
    return told


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 8 else 0


def modelled(release: str) -> str:
    """Return the release whose model stands for another: itself, or the oldest or newest there is."""
    held = releases()
    return min(max(release, held[0], key=release_numbers), held[-1], key=release_numbers)


def named_release(software: str) -> str:
    """Return NCCL's release as a source names it (2.18, or a code such as 22902); empty where it does not."""
    match = re.search(r"(?:\b[NR]?CCL[ -]v?|^v?)(\d{1,3}\.\d{1,3})", software)
    if match:
        return match[1]
    code = re.search(r"\bNCCL (\d)(\d\d)\d\d\b", software)
    return f"{int(code[1])}.{int(code[2])}" if code else ""


def release_of(software: str) -> str:
    """Return NCCL's release as a source names it, or the one usual in the source's year."""
    year = re.search(r"\b(20\d\d)\b", software)
    return named_release(software) or (RELEASE_OF_YEAR.get(year[1], UNKNOWN_YEAR) if year else UNKNOWN_YEAR)
