"""NCCL's graphs as it dumps them (``NCCL_GRAPH_DUMP_FILE``) and as its logs print them (``NCCL_DEBUG_SUBSYS=GRAPH``).

The file comes from elsewhere: a document type or an entity is refused, and sizes, depth and counts are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from ringwright.costs.nccl.graphs import (
    ABSENT,
    BALANCED_TREE,
    COLLNET_DIRECT,
    NVLS,
    PATHS,
    PATTERNS,
    RING,
    SPLIT_TREE,
    TREE,
    Graph,
    Graphs,
)
from ringwright.ground.errors import InputError

FILE_BYTES_MAX = 16 << 20
CHANNELS_MAX = 128
CHAIN_MAX = 4096
DEPTH_MAX = 8
LINE_MAX = 4096

_NAMES = {0: "ring", 1: "tree", 2: "collnet_chain", 3: "nvls", 4: "collnet_direct"}
_REMEDY = "dump it again with NCCL_GRAPH_DUMP_FILE=graphs.xml"
# Numbers that the first releases printed in place of names.
_OLD_PATHS = {"0": "LOC", "1": "NVL", "2": "PXB", "3": "SYS", "4": "NET"}
_PATTERN = re.compile(
    r"Pattern ([0-9]{1,3}), crossNic ([0-9]{1,3}), nChannels ([0-9]{1,4}), "
    r"(?:bw|speed) ([0-9.]{1,20})(?:/([0-9.]{1,20}))?(?:, nvlink ([01]))?"
    r"(?:, type ([A-Z0-9]{1,8})(?:/([A-Z0-9]{1,8}))?)?(?:, sameChannels ([01]))?"
)


def read_nccl_graph_xml(path: str | Path) -> Graphs:
    """Read a graph file; raise InputError, with the line, for one that is missing, hostile or not such a file."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read the graph file: {error.strerror}", where=str(source)) from error
    return parse_nccl_graph_xml(data, name=str(source))


def parse_nccl_graph_xml(data: bytes, *, name: str = "graph.xml") -> Graphs:
    """Return the graphs of a file's bytes; raise InputError as :func:`read_nccl_graph_xml` does."""
    if len(data) > FILE_BYTES_MAX:
        raise InputError("the graph file is larger than 16 MiB", where=name, remedy=_REMEDY)
    reader = _Reader(name)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        what = f"not well-formed XML: {expat.errors.messages[error.code]}"
        raise InputError(what, where=f"{name}:{error.lineno}", remedy=_REMEDY) from error
    if "ring" not in reader.graphs:
        raise InputError("the file holds no ring graph (id 0)", where=name, remedy=_REMEDY)
    ring = reader.graphs.pop("ring")
    return Graphs(ring, **({"tree": ABSENT} | reader.graphs))


def graphs_from_log(lines: Iterable[str]) -> list[Graphs]:
    """Return the graphs that a log prints, one entry for each time that a rank of a communicator printed a ring.

    A line is ``Pattern 4, crossNic 0, nChannels 2, bw 12.0/12.0, type SYS/PIX, sameChannels 1``; before 2.13 it says
    speed for bw, before 2.7 the types are numbers, in 2.5 there is one speed and ``nvlink 1``. The order of lines says
    which graph a tree pattern belongs to: tree first, then CollNet. Lines of other ranks may stand in between.
    """
    ranks: dict[str, dict[str, Graph]] = {}
    printed: list[dict[str, Graph]] = []
    for line in lines:
        match = _PATTERN.search(line[:LINE_MAX])
        graph = _logged(match) if match else None
        if match is None or graph is None:
            continue
        who = line[: match.start()]
        if graph.pattern == RING:
            ranks[who] = {"ring": graph}
            printed.append(ranks[who])
        elif who in ranks:
            ranks[who].setdefault(_log_name(graph.pattern, ranks[who]), graph)
    return [Graphs(**({"tree": ABSENT} | graphs)) for graphs in printed]


def _log_name(pattern: int, known: dict[str, Graph]) -> str:
    if pattern in (NVLS, COLLNET_DIRECT):
        return "nvls" if pattern == NVLS else "collnet_direct"
    return "collnet_chain" if "tree" in known else "tree"


def _logged(match: re.Match[str]) -> Graph | None:
    pattern, cross, channels, intra, inter, nvlink, type_intra, type_inter, same = match.groups()
    try:
        speed_intra, speed_inter = float(intra), float(inter or intra)
    except ValueError:
        return None
    inside = _OLD_PATHS.get(type_intra or "", type_intra) or ("NVL" if nvlink == "1" else "PXB")
    between = _OLD_PATHS.get(type_inter or "", type_inter) or ("PXB" if nvlink else inside)
    if nvlink is not None:
        inside = "NVL" if nvlink == "1" else "PXB"
    if int(pattern) not in PATTERNS or int(channels) > CHANNELS_MAX or not {inside, between} <= set(PATHS):
        return None
    return Graph(
        int(pattern),
        int(channels),
        speed_intra,
        speed_inter,
        inside,
        between,
        same_channels=same == "1",
        cross_nic=int(cross),
    )


@dataclass
class _Reader:
    """Events of the XML parser, gathered into graphs."""

    name: str
    graphs: dict[str, Graph] = field(default_factory=dict)
    depth: int = 0
    open_graph: str = ""
    chains: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = lambda *_: self.fail("a document type is not read")
        self.parser.EntityDeclHandler = lambda *_: self.fail("an entity is not read")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end

    def fail(self, what: str) -> NoReturn:
        raise InputError(what, where=f"{self.name}:{self.parser.CurrentLineNumber}", remedy=_REMEDY)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail(f"more than {DEPTH_MAX} elements inside each other")
        if self.depth == 1 and tag != "graphs":
            self.fail(f"the root is <{tag[:32]}>, not <graphs>")
        if tag == "graph" and self.depth == 2:
            self.begin(attributes)
        elif tag == "channel" and self.open_graph:
            if len(self.chains) >= CHANNELS_MAX:
                self.fail(f"more than {CHANNELS_MAX} channels")
            self.chains.append(([], []))
        elif tag in ("gpu", "net") and self.chains:
            chain = self.chains[-1][tag == "net"]
            if len(chain) >= CHAIN_MAX:
                self.fail(f"more than {CHAIN_MAX} devices in a channel")
            rank = attributes.get("rank") if tag == "gpu" else None
            chain.append(self.whole(rank, 10, "rank") if rank else self.whole(attributes.get("dev"), 16, "dev"))

    def end(self, tag: str) -> None:
        self.depth -= 1
        if tag == "graph" and self.open_graph and self.depth == 1:
            orders = tuple(tuple(gpus) for gpus, _ in self.chains)
            nets = tuple(tuple(nics) for _, nics in self.chains)
            self.graphs[self.open_graph] = replace(self.graphs[self.open_graph], orders=orders, nets=nets)
            self.open_graph, self.chains = "", []

    def begin(self, attributes: dict[str, str]) -> None:
        number = self.whole(attributes.get("id"), 10, "id")
        if number not in _NAMES:
            self.fail(f"graph id {number} is not 0 to 4")
        if _NAMES[number] in self.graphs:
            self.fail(f"graph id {number} occurs twice")
        pattern = self.whole(attributes.get("pattern"), 10, "pattern")
        allowed = {0: (RING,), 3: (NVLS,), 4: (COLLNET_DIRECT,)}.get(number, (BALANCED_TREE, SPLIT_TREE, TREE))
        if pattern not in PATTERNS or (number in (0, 3) and pattern not in allowed):
            self.fail(f"graph id {number} has pattern {pattern}")
        channels = self.whole(attributes.get("nchannels"), 10, "nchannels")
        if channels > CHANNELS_MAX:
            self.fail(f"more than {CHANNELS_MAX} channels")
        self.open_graph = _NAMES[number]
        self.graphs[self.open_graph] = Graph(
            pattern,
            channels,
            self.rate(attributes, "speedintra"),
            self.rate(attributes, "speedinter"),
            self.path(attributes, "typeintra"),
            self.path(attributes, "typeinter"),
            same_channels=attributes.get("samechannels", "0") == "1",
            latency_inter_us=self.rate(attributes, "latencyinter", "0"),
            cross_nic=self.whole(attributes.get("crossnic", "0"), 10, "crossnic"),
        )

    def whole(self, text: str | None, radix: int, what: str) -> int:
        try:
            if text is None or len(text) > 18:
                raise ValueError
            value = int(text, radix)
        except ValueError:
            self.fail(f"{what}='{(text or '')[:32]}' is not a number")
        if value < 0:
            self.fail(f"{what}='{text}' is negative")
        return value

    def rate(self, attributes: dict[str, str], what: str, otherwise: str = "") -> float:
        text = attributes.get(what, otherwise)
        try:
            value = float(text)
        except ValueError:
            self.fail(f"{what}='{text[:32]}' is not a number")
        if not math.isfinite(value) or value < 0:
            self.fail(f"{what}='{text[:32]}' is not a rate or a time")
        return value

    def path(self, attributes: dict[str, str], what: str) -> str:
        kind = attributes.get(what, "")
        if kind not in PATHS:
            self.fail(f"{what}='{kind[:32]}' is not one of {' '.join(PATHS)}")
        return kind
