"""Which machine a measured table was taken on, from what is written beside it: a call for the closed form, or why there is none.

The columns are those of ``*_cases.csv``: GPU, nodes, GPUs a node, links inside and between nodes, software, settings. What a
source does not say is taken from the usual node of its GPU, and a release from its year; both are assumptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ringwright.costs.learnt.call import LEARNT_OPS, LibraryCall
from ringwright.costs.nccl.constants import release_numbers, releases
from ringwright.costs.nccl.graphs import NcclSystem
from ringwright.costs.nccl.node_types import NODE_TYPES, NodeType, search
from ringwright.costs.nccl.timing import NcclOverride
from ringwright.costs.transports import carrier

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
    ("A100", "dgx-a100"),
    ("A800", "dgx-a100"),
)
NICS = re.compile(r"(\d+(?:\.\d+)?) ?x ?(\d+(?:\.\d+)?) ?Gb/s")
MESH_GPUS = 4  # of a node whose GPUs are joined pair by pair
RELEASE_OF_YEAR = {"2022": "2.14", "2023": "2.18", "2024": "2.20", "2025": "2.26", "2026": "2.28"}
UNKNOWN_YEAR = "2.20"
FORCED = re.compile(r"NCCL_ALGO=(\w+)(?:.*NCCL_PROTO=(\w+))?(?:.*NCCL_MIN_NCHANNELS=(\d+))?", re.DOTALL)


def described(op: str, facts: Mapping[str, str], sizes_bytes: tuple[int, ...]) -> LibraryCall | str:
    """Return the call of an operation on the machine of a row of ``*_cases.csv`` at these sizes, or in words why it is none."""
    if op not in LEARNT_OPS:
        return f"{op or 'an operation without a name'} has no closed form; known: {', '.join(LEARNT_OPS)}"
    gpu = facts.get("gpu", "")
    base = next((name for part, name in BASES if part in gpu), None)
    if base is None:
        return f"the node type of the GPU '{gpu}' is not known; known: {', '.join(part for part, _ in BASES)}"
    nodes, per_node = _whole(facts.get("nodes")), _whole(facts.get("gpus_per_node"))
    if not nodes or not per_node or nodes * per_node < 2:
        return "it does not say its nodes and GPUs a node, or has one rank alone"
    kind = _shaped(NODE_TYPES[base], facts, per_node)
    if "domain" in facts.get("intra_node", ""):
        kind = replace(kind, gpus=nodes * per_node, nics=nodes * kind.nics, domain=1)
        joined, nodes = nodes > 1, 1
    else:
        joined = False
    system = NcclSystem(
        search(kind, nodes),
        nodes=nodes,
        ranks=nodes * kind.gpus,
        capability=kind.capability,
        cpu_vendor=kind.cpu_vendor,
        cpu_arch=kind.cpu_arch,
        nvswitch=kind.nvswitch,
        nvls=kind.nvswitch and kind.capability >= 90,
        collnet=False,
        mnnvl=joined,
        name=facts.get("case", ""),
    )
    return LibraryCall(
        op,
        sizes_bytes,
        kind,
        system,
        modelled(release_of(facts.get("software", ""))),
        carrier(f"{facts.get('settings', '')} {facts.get('inter_node', '')}", "infiniband"),
        forced(facts.get("settings", "")),
        facts.get("system", ""),
        f"{facts.get('settings', '')} {facts.get('software', '')}",
        facts.get("case", ""),
    )


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
    nics, rate_gbs = (float(match[1]), float(match[2]) / 8) if match else (float(base.nics), base.nic_gbs)
    whole = nics * per_node if "a rank" in between or "a GPU" in between else nics * min(per_node, gpus) / gpus
    return replace(kind, gpus=per_node, nics=max(1, int(whole)), nic_gbs=rate_gbs)


def forced(settings: str) -> NcclOverride | None:
    """Return what the environment in the settings forces, None where it forces nothing."""
    match = FORCED.search(settings)
    if match is None:
        return None
    channels = int(match[3]) if match[3] else None
    return NcclOverride(match[1].lower(), match[2].lower() if match[2] else None, channels)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 8 else 0


def modelled(release: str) -> str:
    """Return the release whose model stands for another: itself, or the oldest or newest there is."""
    held = releases()
    return min(max(release, held[0], key=release_numbers), held[-1], key=release_numbers)


def named_release(software: str) -> str:
    """Return NCCL's release as a source names it (2.18, or a code such as 22902); empty where it does not."""
    match = re.search(r"\bN?CCL (\d+\.\d+)", software)
    if match:
        return match[1]
    code = re.search(r"\bNCCL (\d)(\d\d)\d\d\b", software)
    return f"{int(code[1])}.{int(code[2])}" if code else ""


def release_of(software: str) -> str:
    """Return NCCL's release as a source names it, or the one usual in the source's year."""
    year = re.search(r"\b(20\d\d)\b", software)
    return named_release(software) or (RELEASE_OF_YEAR.get(year[1], UNKNOWN_YEAR) if year else UNKNOWN_YEAR)
