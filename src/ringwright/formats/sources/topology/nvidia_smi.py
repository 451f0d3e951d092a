"""The matrix of ``nvidia-smi topo -m``: how every two devices of a host are joined.

NV# is a bundle of # NVLinks. Where all GPUs see each other over the same # and no GPU has that many links to each other one
(18 is the most), they hang on an NVSwitch. PIX, PXB, PHB, NODE and SYS are a tree of PCIe switches, host bridges, NUMA
nodes and sockets, rebuilt from who is how near to whom. The matrix gives no rates; see the knobs.
"""

from __future__ import annotations

import re
from pathlib import Path

from ringwright.formats.sources.topology.assembly import LATENCY_S, NIC, RANK, SWITCH, Parts
from ringwright.ground.errors import InputError
from ringwright.model.topology import Topology

LEVELS = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SOC": 5, "SYS": 5}
NODE_NAMES = {1: "pcie", 2: "bridge", 3: "cpu", 4: "numa"}
MOST_DEVICES = 256
MOST_LINKS = 18  # of a GPU (H100, B200)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"(GPU\d+|NIC\d+|mlx\d+_\w+|[a-z]+\d*_\d+)", re.ASCII)
_BOND = re.compile(r"NV(\d{1,3})", re.ASCII)


def read_nvidia_smi(
    text: str,
    name: str,
    *,
    boxes: int = 1,
    nvlink_rate: float = 25e9,
    pcie_rate: float = 31.5e9,
    upi_rate: float = 20e9,
    nic_rate: float = 25e9,
) -> Topology:
    """Return the host, or several whose NICs meet at one switch.

    Bytes/s each way of one NVLink (25 GB/s from V100 to H100, 50 in B200), one PCIe x16 (Gen4), between sockets, and of a
    NIC (200 Gb/s): all assumed unless given. Raises InputError with the line that is not understood.
    """
    devices, cells = _matrix(text, name)
    parts = Parts(Path(name).stem)
    for device in devices:
        is_gpu = device.startswith("GPU")
        node = parts.node(device, RANK if is_gpu else NIC, device.lower())
        if not is_gpu:
            parts.nic_rates[node] = nic_rate
    _nvlinks(parts, devices, cells, nvlink_rate)
    _tree(parts, devices, cells, pcie_rate, upi_rate)
    return parts.topology(boxes, "nvidia-smi topo -m; rates and times assumed unless given")


def _matrix(text: str, name: str) -> tuple[list[str], dict[tuple[str, str], str]]:
    """Return the devices and the cell of each pair."""
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    head, devices = _devices(lines, name)
    cells: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines[head + 1 :], head + 2):
        words = line.split()
        if not words or words[0] not in devices:
            if words and cells and len(cells) >= len(devices) ** 2:
                break
            continue
        row = words[1 : len(devices) + 1]
        wrong = [word for word in row if word != "X" and word not in LEVELS and not _BOND.fullmatch(word)]
        if len(row) < len(devices) or wrong:
            what = f"'{wrong[0][:20]}' is no connection" if wrong else "a row is cut short"
            raise InputError(what, where=f"{name}:{number}", remedy=f"X, NV#, {', '.join(LEVELS)}")
        cells |= {(words[0], other): cell for other, cell in zip(devices, row, strict=True)}
    missing = [device for device in devices if (device, device) not in cells]
    if missing:
        raise InputError(f"the row of {missing[0]} is missing", where=name)
    return devices, cells


def _devices(lines: list[str], name: str) -> tuple[int, list[str]]:
    head = next(
        (number for number, line in enumerate(lines) if line.split()[:1] == ["GPU0"] and " X " not in f" {line} "), -1
    )
    if head < 0:
        raise InputError(f"{name} has no line of devices", where=f"{name}:1", remedy="nvidia-smi topo -m > topo.txt")
    devices = []
    for word in lines[head].split():
        if not _DEVICE.fullmatch(word):
            break
        devices.append(word)
    if len(set(devices)) != len(devices) or len(devices) > MOST_DEVICES:
        raise InputError(f"{len(devices)} devices, some of them twice or too many", where=f"{name}:{head + 1}")
    return head, devices


def _nvlinks(parts: Parts, devices: list[str], cells: dict[tuple[str, str], str], rate: float) -> None:
    gpus = [device for device in devices if device.startswith("GPU")]
    bonds = {}
    for here in gpus:
        for there in gpus:
            match = _BOND.fullmatch(cells[here, there])
            if match and here != there:
                bonds[here, there] = int(match[1])
    counts = set(bonds.values())
    everyone = len(bonds) == len(gpus) * (len(gpus) - 1)
    if len(counts) == 1 and everyone and max(counts) * (len(gpus) - 1) > MOST_LINKS:
        hub = parts.node("nvswitch", SWITCH, "nvswitch")
        for gpu in gpus:
            parts.there_and_back(parts.keys[gpu], hub, max(counts) * rate, "nvlink", LATENCY_S["nvlink"] / 2)
        return
    for (here, there), count in bonds.items():
        parts.one_way(parts.keys[here], parts.keys[there], count * rate, "nvlink")


def _tree(
    parts: Parts, devices: list[str], cells: dict[tuple[str, str], str], pcie_rate: float, upi_rate: float
) -> None:
    """Join groups level by level: a level at which several groups become one gets a node."""
    tops = {device: parts.keys[device] for device in devices}  # each device's highest node so far
    for level in range(1, 5):
        groups = _groups(devices, cells, level)
        for number, group in enumerate(groups):
            below = list(dict.fromkeys(tops[device] for device in group))
            is_top = level == 4 and len(groups) > 1 and parts.kinds[below[0]] != SWITCH
            if len(below) > 1 or is_top:
                node = parts.node((level, number), SWITCH, f"{NODE_NAMES[level]}{number}")
                for child in below:
                    parts.there_and_back(child, node, pcie_rate, "pcie")
                tops |= dict.fromkeys(group, node)
    sockets = list(dict.fromkeys(tops.values()))
    for socket, here in enumerate(sockets):
        for there in sockets[:socket]:
            parts.there_and_back(there, here, upi_rate, "upi")


def _groups(devices: list[str], cells: dict[tuple[str, str], str], level: int) -> list[list[str]]:
    """Return the devices that are as near as ``level`` to each other, directly or through others."""
    owner = {device: device for device in devices}
    for (here, there), cell in cells.items():
        if LEVELS.get(cell, 9) <= level and owner[here] != owner[there]:
            old, new = owner[there], owner[here]
            owner = {device: new if groups == old else groups for device, groups in owner.items()}
    groups: dict[str, list[str]] = {}
    for device in devices:
        groups.setdefault(owner[device], []).append(device)
    return list(groups.values())
