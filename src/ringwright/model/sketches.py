"""TACCL communication sketches: which links a designer wants used, what relays to other boxes, and what looks the same.

A sketch is for a number of equal boxes; GPUs are numbered in their box. Of a box that stands alone no ``internode_sketch`` is
asked, which the public tool fails without. Fields and their meaning are those of TACCL's examples (``nnodes``,
``intranode_sketch``, ``internode_sketch``, ``symmetry_offsets``, ``hyperparameters.input_chunkup``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringwright.ground.errors import InputError

STRATEGIES = ("none", "switch", "minmax", "maxmin")
POLICIES = ("uc-min", "uc-max")
CONNECTIONS = ("direct-map", "fully-connected")
MOST_BYTES = 1 << 20
MOST_HOSTS, MOST_GPUS, MOST_CHUNKS = 4096, 1024, 1024
REMEDY = "see the sketches in microsoft/taccl, taccl/examples/sketch"


@dataclass(frozen=True)
class Sketch:
    """A communication sketch.

    ``switches`` are lists of GPUs of a box that talk through one switch, each with its policy: as few connections as will do
    (uc-min) or as many (uc-max). ``connections`` are the GPUs of another box that a sender sends to: a word of ``CONNECTIONS``,
    or by sender. ``relays`` are the GPUs whose data leave by a sender (none: any sender). ``ordered``: a sender's own data go
    first. ``symmetry``: pairs (offset, size), each saying that rank r and the one ``offset`` further in its group of ``size``
    behave alike. ``chunks``: how many each block is cut into.
    """

    hosts: int = 1
    strategy: str = "none"
    switches: tuple[tuple[int, ...], ...] = ()
    policies: tuple[str, ...] = ()
    connections: Mapping[int, tuple[int, ...]] | str = field(default_factory=dict)
    relays: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    ordered: bool = False
    symmetry: tuple[tuple[int, int], ...] = ()
    chunks: int = 1
    name: str = "sketch"

    def receivers(self, gpus: int) -> dict[int, tuple[int, ...]]:
        """Return by sender the GPUs of another box that it sends to, for boxes of so many GPUs."""
        if self.connections == "direct-map":
            return {gpu: (gpu,) for gpu in range(gpus)}
        if self.connections == "fully-connected":
            return {gpu: tuple(range(gpus)) for gpu in range(gpus)}
        assert not isinstance(self.connections, str)  # noqa: S101 - the reader takes no other word
        return dict(self.connections)


def read_sketch(path: str | Path) -> Sketch:
    """Return the sketch of a file; InputError with its field where nothing can be made of it."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}", where=name, remedy=REMEDY) from error
    if len(data) > MOST_BYTES:
        raise InputError(f"{name} is larger than {MOST_BYTES >> 20} MiB: no sketch", where=name, remedy=REMEDY)
    return parse_sketch(data.decode(errors="replace"), name=name)


def parse_sketch(text: str, *, name: str = "sketch") -> Sketch:
    """Return the sketch of a text; ``name`` is told in errors."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} is not JSON: {error.msg}", where=f"{name}:{error.lineno}:{error.colno}") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{name} is nested too deeply or holds a number too long", where=name) from error
    return _Fields(document, name).sketch()


class _Fields:
    """The fields of a sketch, each looked at before it is used."""

    def __init__(self, document: object, name: str) -> None:
        self.name = name
        self.top = self._object(document, "the file")

    def sketch(self) -> Sketch:
        inside = self._object(self.top.get("intranode_sketch"), "intranode_sketch")
        strategy = self._word(inside.get("strategy"), "strategy", STRATEGIES)
        switches = tuple(self._gpus(each, "switches") for each in self._list(inside.get("switches", []), "switches"))
        told = self._list(inside.get("switch_hyperedge_strategy", []), "switch_hyperedge_strategy")
        policies = tuple(self._word(each, "switch_hyperedge_strategy", POLICIES) for each in told)
        if strategy == "switch" and not (switches and len(policies) == len(switches)):
            raise self._wrong("switches", f"{len(switches)} with {len(policies)} policies, one each")
        hosts = self._count(self.top.get("nnodes"), "nnodes", MOST_HOSTS)
        between = self._object(self.top.get("internode_sketch", {}), "internode_sketch")
        if hosts > 1:
            self._word(between.get("strategy"), "internode_sketch strategy", ("relay",))
        tuning = self._object(self.top.get("hyperparameters", {}), "hyperparameters")
        return Sketch(
            hosts,
            strategy,
            switches if strategy == "switch" else (),
            policies if strategy == "switch" else (),
            self._connections(between.get("internode_conn", {}), needed=hosts > 1),
            self._by_gpu(between.get("gpus_to_sender_rev_map") or {}, "gpus_to_sender_rev_map"),
            bool(between.get("enforce_ordering", False)),
            tuple(self._offset(each) for each in self._list(self.top.get("symmetry_offsets", []), "symmetry_offsets")),
            self._count(tuning.get("input_chunkup", 1), "input_chunkup", MOST_CHUNKS),
            Path(self.name).stem,
        )

    def _connections(self, value: object, *, needed: bool) -> Mapping[int, tuple[int, ...]] | str:
        if isinstance(value, str):
            return self._word(value, "internode_conn", CONNECTIONS)
        conn = self._by_gpu(value, "internode_conn")
        if needed and not any(conn.values()):
            raise self._wrong("internode_conn", "it joins no GPUs of two boxes")
        return conn

    def _by_gpu(self, value: object, key: str) -> dict[int, tuple[int, ...]]:
        rows: dict[int, tuple[int, ...]] = {}
        for gpu, listed in self._object(value, key).items():
            if not (gpu.isascii() and gpu.isdigit() and len(gpu) <= 4 and int(gpu) < MOST_GPUS):
                raise self._wrong(key, f"'{gpu[:20]}' is no GPU")
            rows[int(gpu)] = self._gpus(listed, key)
        return rows

    def _offset(self, value: object) -> tuple[int, int]:
        pair = self._list(value, "symmetry_offsets")
        if len(pair) != 2:
            raise self._wrong("symmetry_offsets", f"{str(value)[:40]} is no pair [offset, group size]")
        most = MOST_HOSTS * MOST_GPUS
        offset, size = (self._count(each, "symmetry_offsets", most) for each in pair)
        if offset > size or size % offset:
            raise self._wrong("symmetry_offsets", f"groups of {size} have no turn by {offset}")
        return offset, size

    def _gpus(self, value: object, key: str) -> tuple[int, ...]:
        listed = self._list(value, key)
        gpus = tuple(each for each in listed if type(each) is int and 0 <= each < MOST_GPUS)
        if len(gpus) < len(listed) or len(set(gpus)) < len(gpus):
            raise self._wrong(key, f"{str(value)[:40]} lists no GPUs, each once")
        return gpus

    def _object(self, value: object, key: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self._wrong(key, f"{str(value)[:40]} is no object")
        return value

    def _list(self, value: object, key: str) -> list[object]:
        if not isinstance(value, list) or len(value) > MOST_GPUS:
            raise self._wrong(key, f"{str(value)[:40]} is no list")
        return value

    def _count(self, value: object, key: str, most: int) -> int:
        if type(value) is not int or not 1 <= value <= most:
            raise self._wrong(key, f"{str(value)[:40]} is no number from 1 to {most}")
        return value

    def _word(self, value: object, key: str, words: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in words:
            raise self._wrong(key, f"{str(value)[:40]} is none of {', '.join(words)}")
        return value

    def _wrong(self, key: str, why: str) -> InputError:
        return InputError(f"{self.name}: {key}: {why}", where=f"{self.name} {key}", remedy=REMEDY)
