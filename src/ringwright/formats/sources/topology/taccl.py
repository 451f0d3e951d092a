"""TACCL topology profiles: betas in microseconds for one chunk, alphas scaled alike, one box.

A profile holds for one chunk size, told by the end of its name (``_1KB``, ``_32KB``, ``_1MB``); the public ones multiply
all times by 100, 10 and 1, so that whole numbers lose little. Sizes are binary. NDv2 boxes are the hybrid cube mesh with
double links at the smaller beta, DGX2 boxes one switch, HubAndSpoke likewise; ``links`` and ``betas`` give any other box,
indexed [dst][src].
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.topology.assembly import NIC, RANK, SWITCH, Parts
from ringwright.ground.errors import InputError
from ringwright.model.topology import Topology

if TYPE_CHECKING:
    from ringwright.model.sketches import Sketch

SCALES = {1 << 10: 100.0, 32 << 10: 10.0, 1 << 20: 1.0}
_SIZE = re.compile(r"_(\d{1,4})(KB|MB)$", re.IGNORECASE)
MOST_GPUS = 1024
# Pairs of the hybrid cube mesh with two links, and with one.
DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
PCIE_RATE = 15.75e9  # Gen3 x16, towards the NIC; the profile does not tell


def read_taccl(
    text: str, name: str, *, boxes: int = 1, chunk_bytes: int | None = None, scale: float | None = None
) -> Topology:
    """Return the box, or boxes whose NICs meet at one switch.

    ``chunk_bytes`` and ``scale``: what the profile's times stand for, where its name does not tell (else 1 MiB and 1).
    Raises InputError where a field is missing or makes no sense.
    """
    profile, parts, ground = _begun(text, name, chunk_bytes, scale)
    profile.nics(parts)
    remote_s = profile.times("remote_alpha", missing=math.nan)
    wire_s = None if math.isnan(remote_s) else remote_s / 2
    return parts.topology(boxes, ground, wire_s)


def read_taccl_model(
    text: str, name: str, sketch: Sketch, *, chunk_bytes: int | None = None, scale: float | None = None
) -> Topology:
    """Return the boxes of a sketch as TACCL's own model has them: a link of its own for each sender and receiver.

    The NICs of a box are shared evenly by all its links to another box, whether or not they are in use. From three boxes on what
    a GPU sends to all of them goes through one port, and what it receives through another. Arguments as of ``read_taccl``.
    """
    profile, parts, ground = _begun(text, name, chunk_bytes, scale)
    machine = parts.topology(sketch.hosts, f"{ground}; links between machine as the sketch {sketch.name} has them")
    return machine if sketch.hosts == 1 else _joined(machine, profile, sketch)


def _begun(text: str, name: str, chunk_bytes: int | None, scale: float | None) -> tuple[_Profile, Parts, str]:
    """Return the profile, its box without NICs, and what its times are for."""
    document = _load(text, name)
    title = str(document.get("name", ""))
    match = _SIZE.search(title)
    told = int(match[1]) << (10 if match[2].upper() == "KB" else 20) if match else 1 << 20
    chunk = told if chunk_bytes is None else chunk_bytes
    profile = _Profile(document, name, chunk, SCALES.get(chunk, 1.0) if scale is None else scale)
    parts = Parts(title or Path(name).stem)
    profile.joined(parts)
    ground = f"TACCL profile for chunks of {chunk} B, times divided by {profile.scale:g}"
    return profile, parts, ground if match or chunk_bytes else f"{ground} (assumed)"


def _joined(machine: Topology, profile: _Profile, sketch: Sketch) -> Topology:
    """Return boxes with the links of a sketch between them."""
    import numpy as np

    receivers = sketch.receivers(profile.gpus)
    strange = [gpu for row in (receivers, *receivers.values()) for gpu in row if gpu >= profile.gpus]
    if strange:
        raise InputError(
            f"{sketch.name} joins GPU {strange[0]}, a box has {profile.gpus}", where=f"{sketch.name} internode_conn"
        )
    rate, alpha_s = profile.remote(sum(map(len, receivers.values())))
    links: list[tuple[int, int, float]] = []  # from, to, latency
    pairs = [
        (one * profile.gpus + here, other * profile.gpus + there)
        for one in range(sketch.hosts)
        for other in range(sketch.hosts)
        if one != other
        for here, row in receivers.items()
        for there in row
    ]
    ports: dict[tuple[str, int], int] = {}
    if sketch.hosts > 2:
        for side, end in (("out", 0), ("in", 1)):
            for gpu in sorted({pair[end] for pair in pairs}):
                ports[side, gpu] = machine.n_nodes + len(ports)
                links.append((gpu, ports[side, gpu], alpha_s) if side == "out" else (ports[side, gpu], gpu, 0.0))
    links += [
        (ports.get(("out", src), src), ports.get(("in", dst), dst), 0.0 if ports else alpha_s) for src, dst in pairs
    ]
    count = len(links)
    return dataclasses.replace(
        machine,
        kinds=np.concatenate((machine.kinds, np.full(len(ports), SWITCH, np.uint8))),
        src=np.concatenate((machine.src, [link[0] for link in links])),
        dst=np.concatenate((machine.dst, [link[1] for link in links])),
        rate=np.concatenate((machine.rate, np.full(count, rate))),
        latency_s=np.concatenate((machine.latency_s, [link[2] for link in links])),
        link_class=np.concatenate((machine.link_class, np.full(count, len(machine.classes)))),
        classes=(*machine.classes, "ib"),
        names=[*(machine.names or ()), *(f"{side} of {machine.label(gpu)}" for side, gpu in ports)],
    )


def _load(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} is not JSON: {error.msg}", where=f"{name}:{error.lineno}:{error.colno}") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{name} is nested too deeply or holds a number too long", where=name) from error
    if not isinstance(document, dict):
        raise InputError(f"{name} is no TACCL profile", where=name, remedy='an object with "gpus_per_node"')
    return document


class _Profile:
    """The fields of a profile in SI."""

    def __init__(self, document: dict[str, Any], name: str, chunk: int, scale: float) -> None:
        self.document, self.name, self.chunk, self.scale = document, name, chunk, scale
        if chunk < 1 or not scale > 0:
            raise InputError(f"{name}: a chunk of {chunk} B at scale {scale} makes no sense", where=name)
        self.gpus = self._count("gpus_per_node", MOST_GPUS)

    def wrong(self, key: str) -> InputError:
        value = str(self.document.get(key))[:40]
        return InputError(
            f"{self.name}: {key} is {value}", where=f"{self.name} {key}", remedy="see TACCL's INPUT_GUIDE.md"
        )

    def _count(self, key: str, most: int) -> int:
        value = self.document.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.wrong(key)
        return value

    def times(self, key: str, missing: float | None = None) -> float:
        """Return a field in seconds."""
        if key not in self.document and missing is not None:
            return missing
        return self._seconds(self.document.get(key), key)

    def _seconds(self, value: Any, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
            raise self.wrong(key)
        return value / 1e6 / self.scale

    def _rate(self, value: Any, key: str) -> float:
        beta_s = self._seconds(value, key)
        if not beta_s > self.chunk / 1e18:  # no link carries 10^18 bytes/s
            raise self.wrong(key)
        return self.chunk / beta_s

    def _betas(self) -> list[float]:
        betas = self.document.get("node_betas_list")
        if not isinstance(betas, list) or not 1 <= len(betas) <= 64:
            raise self.wrong("node_betas_list")
        return [self._rate(beta, "node_betas_list") for beta in betas]

    def joined(self, parts: Parts) -> None:
        """Add the GPUs and what joins them."""
        gpus = [parts.node(("gpu", gpu), RANK, f"gpu{gpu}") for gpu in range(self.gpus)]
        alpha_s = self.times("alpha")
        title = str(self.document.get("name", "")).lower()
        if "links" in self.document:
            self._custom(parts, gpus, alpha_s)
        elif title.startswith("ndv2"):
            rates = self._betas()
            if self.gpus != 8 or len(rates) < 2:
                raise self.wrong("gpus_per_node" if self.gpus != 8 else "node_betas_list")
            for pairs, rate in ((DOUBLE, rates[0]), (SINGLE, rates[1])):
                for here, there in pairs:
                    parts.there_and_back(gpus[here], gpus[there], rate, "nvlink", alpha_s)
        else:
            hub = parts.node("hub", SWITCH, "nvswitch")
            rate = self._betas()[0]
            for gpu in gpus:
                parts.there_and_back(gpu, hub, rate, "nvlink", alpha_s / 2)

    def _custom(self, parts: Parts, gpus: list[int], alpha_s: float) -> None:
        links, betas = self._matrix("links"), self._matrix("betas")
        for there in range(self.gpus):
            for here in range(self.gpus):
                if here != there and links[there][here]:
                    parts.one_way(gpus[here], gpus[there], self._rate(betas[there][here], "betas"), "nvlink", alpha_s)

    def _matrix(self, key: str) -> list[list[Any]]:
        rows = self.document.get(key)
        if not isinstance(rows, list) or len(rows) != self.gpus:
            raise self.wrong(key)
        if any(not isinstance(row, list) or len(row) != self.gpus for row in rows):
            raise self.wrong(key)
        return rows

    def remote(self, links: int) -> tuple[float, float]:
        """Return bytes/s and latency of each of ``links`` links to another box, which share the NICs evenly."""
        nics = self._count("nics_per_node", self.gpus)
        return self._rate(self.document.get("remote_beta"), "remote_beta") * nics / links, self.times("remote_alpha")

    def nics(self, parts: Parts) -> None:
        """Add the NICs, each shared by neighbouring GPUs; their rate is that of remote_beta."""
        count = self.document.get("nics_per_node", 0)
        if not count:
            return
        nics = self._count("nics_per_node", self.gpus)
        rate = self._rate(self.document.get("remote_beta"), "remote_beta")
        for nic in range(nics):
            node = parts.node(("nic", nic), NIC, f"nic{nic}")
            parts.nic_rates[node] = rate
        for gpu in range(self.gpus):
            nic = parts.keys["nic", gpu * nics // self.gpus]
            parts.there_and_back(parts.keys["gpu", gpu], nic, max(PCIE_RATE, rate), "pcie", 0.0)
