"""Our own JSON: ``n`` ranks and ``edges`` of [src, dst, GiB/s, us] with every direction listed; more where there is more.

Optional: ``name``, ``kinds`` and ``names`` of all nodes, ``classes`` (a link's fifth entry numbers them), ``loss`` per
link, ``groups`` of shared capacity, ``axes``, ``hosts``, ``aggregators``, ``faults``, the ``fault_lines`` and ``fault_seed`` that
they were asked by, ``message_us``, ``occupying`` classes, ``reduce_gib_s``, ``transport``, ``protocol``, ``packet_bytes``,
``header_bytes``, ``provenance``, ``calibration``. Routes are not kept: what is read back takes shortest routes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ringwright.costs.calibration import Calibration, of_document
from ringwright.costs.protocols import PROTOCOLS
from ringwright.costs.transports import NETWORKS
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.ground.units import GIB
from ringwright.model.codecs.formats import codecs
from ringwright.model.topology import FAULT_FIELDS, KINDS, ORDERS, Capability, Fault, SharedCapacity, Topology
from ringwright.model.wiring import MOST_LINKS

REMEDY = '{"n": 2, "edges": [[0, 1, 50, 0.5], [1, 0, 50, 0.5]]}: src, dst, GiB/s, us'


def read_graph(text: str, name: str) -> Topology:
    """Return the machine; raise InputError with the place in the file."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise InputError(f"{name} is not JSON: {error.msg}", where=where, remedy=REMEDY) from error
    except (RecursionError, ValueError) as error:
        raise InputError(
            f"{name} is nested too deeply or holds a number too long", where=name, remedy=REMEDY
        ) from error
    if isinstance(document, dict) and "intranode_sketch" in document:
        raise InputError(f"{name} is a TACCL sketch, not a machine", where=name, remedy="the topo-*.json beside it")
    if not isinstance(document, dict) or not isinstance(document.get("edges"), list):
        raise InputError(f"{name} has no edges", where=name, remedy=REMEDY)
    return _Graph(document, name).topology()


class _Graph:
    """The object being read."""

    def __init__(self, document: dict[str, Any], name: str) -> None:
        self.document, self.name = document, name

    def wrong(self, what: str, where: str) -> InputError:
        return InputError(f"{self.name}: {what}", where=f"{self.name} {where}", remedy=REMEDY)

    def topology(self) -> Topology:
        import numpy as np

        kinds = self._kinds()
        rows, classes = self._edges(len(kinds)), self._words("classes", ("link",), at_least=1)
        if rows.shape[1] > 4 and len(rows) and rows[:, 4].max() >= len(classes):
            raise self.wrong("a link is of no class", "edges")
        number = rows[:, 4].astype(np.uint8) if rows.shape[1] > 4 else np.zeros(len(rows), np.uint8)
        names = self._words("names", (), at_least=0)
        if names and len(names) != len(kinds):
            raise self.wrong(f"{len(names)} names for {len(kinds)} nodes", "names")
        ranks = int((kinds == 0).sum())
        src, dst = rows[:, 0].astype(np.int32), rows[:, 1].astype(np.int32)
        return Topology(
            str(self.document.get("name") or Path(self.name).stem),
            ranks,
            kinds,
            src,
            dst,
            rows[:, 2] * GIB,
            rows[:, 3] / 1e6,
            number,
            classes,
            self._groups(len(rows)),
            self._axes(ranks),
            self._column("hosts", ranks, np.int64),
            names or None,
            loss=self._column("loss", len(rows), np.float64),
            message_s=self._messages(),
            reduce_rate=self._number("reduce_gib_s", math.inf) * GIB,
            occupying=self._words("occupying", (), at_least=0),
            aggregators=self._aggregators(len(kinds)),
            faults=self._faults(len(rows), ranks),
            fault_lines=self._words("fault_lines", (), at_least=0),
            fault_seed=self._seed(),
            calibration=self._calibration(),
            transport=self._transport(),
            protocol=self._protocol(),
            packet_bytes=self._frame("packet_bytes", 1 << 20),
            header_bytes=self._frame("header_bytes", 4096),
            provenance=str(self.document.get("provenance") or self.document.get("desc") or ""),
        )

    def _calibration(self) -> Calibration | None:
        given = self.document.get("calibration")
        return None if given is None else of_document(given, f"{self.name} calibration")

    def _kinds(self) -> Any:
        import numpy as np

        n, kinds = self.document.get("n"), self.document.get("kinds")
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 1 << 24:
            raise self.wrong(f"n is {str(n)[:20]}, not a count of ranks", "n")
        if kinds is None:
            return np.zeros(n, np.uint8)
        if not isinstance(kinds, list) or any(kind not in KINDS for kind in kinds):
            raise self.wrong(f"kinds are {', '.join(KINDS)}", "kinds")
        numbers = np.array([KINDS.index(kind) for kind in kinds], np.uint8)
        if (numbers[:n] != 0).any() or (numbers[n:] == 0).any() or len(numbers) < n:
            raise self.wrong("the ranks come first, n of them", "kinds")
        return numbers

    def _edges(self, nodes: int) -> Any:
        import numpy as np

        edges = self.document["edges"]
        if len(edges) > MOST_LINKS:
            raise self.wrong("too many links", "edges")
        if not edges:
            return np.zeros((0, 4))
        width = len(edges[0]) if isinstance(edges[0], list) else 0
        for number, edge in enumerate(edges):
            if not isinstance(edge, list) or len(edge) != width or width not in (4, 5) or not _all_numbers(edge):
                raise self.wrong("a link is [src, dst, GiB/s, us]", f"edge {number}")
        rows = np.array(edges, float)
        ends = rows[:, [0, 1, *([4] if width == 5 else [])]]
        bad = (ends < 0).any(axis=1) | (ends != np.floor(ends)).any(axis=1) | (rows[:, :2] >= nodes).any(axis=1)
        bad |= (rows[:, 2:4] < 0).any(axis=1) | (rows[:, 2:4] > 1e12).any(axis=1) | (ends[:, 2:] > 255).any(axis=1)
        if bad.any():
            number = int(bad.argmax())
            raise self.wrong(f"{str(edges[number])[:60]} is no link between {nodes} nodes", f"edge {number}")
        return rows

    def _words(self, key: str, default: tuple[str, ...], *, at_least: int) -> tuple[str, ...]:
        words = self.document.get(key, list(default))
        if not isinstance(words, list) or len(words) < at_least or not all(isinstance(word, str) for word in words):
            raise self.wrong(f"{key} are words", key)
        return tuple(words)

    def _transport(self) -> str:
        transport = self.document.get("transport", "")
        if transport not in ("", *NETWORKS):
            raise self.wrong(f"'{str(transport)[:20]}' is no transport: one of {', '.join(NETWORKS)}", "transport")
        return str(transport)

    def _protocol(self) -> str:
        name = self.document.get("protocol", "")
        if name and name not in PROTOCOLS:
            raise self.wrong(f"'{str(name)[:20]}' is no protocol: one of {', '.join(PROTOCOLS)}", "protocol")
        return str(name)

    def _frame(self, key: str, most: int) -> int:
        """Return a size in bytes, 0 where the file gives none; headers need the size of the data they go with."""
        size = self.document.get(key, 0)
        if type(size) is not int or not 0 <= size <= most or (size and not self.document.get("packet_bytes")):
            raise self.wrong(f"{key} is {str(size)[:20]}, not a size up to {most} B beside packet_bytes", key)
        return size

    def _seed(self) -> int:
        seed = self.document.get("fault_seed", 0)
        if type(seed) is not int or not 0 <= seed < 1 << 63:
            raise self.wrong(f"fault_seed is {str(seed)[:20]}, not a whole number from 0 on", "fault_seed")
        return seed

    def _number(self, key: str, default: float) -> float:
        value = self.document.get(key)
        if value is None:
            return default
        if not _all_numbers([value]) or value <= 0:
            raise self.wrong(f"{key} is no number above 0", key)
        return float(value)

    def _column(self, key: str, length: int, kind: Any) -> Any:
        import numpy as np

        values = self.document.get(key)
        if values is None:
            return None
        legal = isinstance(values, list) and len(values) == length and _all_numbers(values)
        if not legal or not all(0 <= each < 1e9 for each in values):
            raise self.wrong(f"{key} are {length} numbers", key)
        if key == "loss" and max(values, default=0) > 1:
            raise self.wrong("loss is a share, at most 1", key)
        return np.array(values, kind)

    def _rows(self, key: str) -> list[Any]:
        rows = self.document.get(key, [])
        if not isinstance(rows, list):
            raise self.wrong(f"{key} are a list", key)
        return rows

    def _axes(self, ranks: int) -> tuple[tuple[str, int], ...]:
        axes = self._rows("axes")
        if not all(
            isinstance(axis, list) and len(axis) == 2 and isinstance(axis[1], int) and axis[1] > 0 for axis in axes
        ):
            raise self.wrong("an axis is a name and a size", "axes")
        if axes and math.prod(size for _, size in axes) != ranks:
            raise self.wrong(f"the axes do not make {ranks} ranks", "axes")
        return tuple((str(axis), size) for axis, size in axes)

    def _groups(self, links: int) -> tuple[SharedCapacity, ...]:
        import numpy as np

        groups = []
        for number, row in enumerate(self._rows("groups")):
            numbers = row.get("links") if isinstance(row, dict) else None
            rate: Any = row.get("gib_s") if isinstance(row, dict) else None
            legal = isinstance(numbers, list) and all(isinstance(each, int) and 0 <= each < links for each in numbers)
            if not legal or not _all_numbers([rate]) or not rate > 0:
                raise self.wrong("a group is name, gib_s and links", f"group {number}")
            groups.append(
                SharedCapacity(str(row.get("name", f"group{number}")), rate * GIB, np.array(numbers, np.int64))
            )
        return tuple(groups)

    def _messages(self) -> dict[str, float]:
        costs = self.document.get("message_us", {})
        legal = isinstance(costs, dict) and _all_numbers(list(costs.values()))
        if not legal or min(costs.values(), default=0) < 0:
            raise self.wrong("message_us gives a time for each class", "message_us")
        return {key: value / 1e6 for key, value in costs.items()}

    def _aggregators(self, nodes: int) -> dict[int, Capability]:
        rows = self.document.get("aggregators", {})
        if not isinstance(rows, dict):
            raise self.wrong("aggregators are an object by node", "aggregators")
        try:
            capabilities = {int(node): _capability(row) for node, row in rows.items()}
        except (TypeError, ValueError, KeyError, OverflowError, RingwrightError) as error:
            raise self.wrong(f"an aggregator is not understood: {error}", "aggregators") from error
        if any(not 0 <= node < nodes for node in capabilities):
            raise self.wrong("an aggregator is no node", "aggregators")
        return capabilities

    def _faults(self, links: int, ranks: int) -> tuple[Fault, ...]:
        faults = []
        for number, row in enumerate(self._rows("faults")):
            try:
                target: Any = row["target"]
                fault = Fault(float(row["time_s"]), row["kind"], target, row["field"], float(row["value"]))
                most = {"link": links, "rank": ranks}[fault.kind]
                legal = type(target) is int and 0 <= target < most and fault.field in FAULT_FIELDS
                if not legal or not (0 <= fault.time_s < math.inf and 0 <= fault.value < math.inf):
                    raise ValueError("out of range")
            except (TypeError, ValueError, KeyError, OverflowError) as error:
                raise self.wrong(f"a fault is not understood: {error}", f"fault {number}") from error
            faults.append(fault)
        return tuple(sorted(faults, key=lambda fault: (fault.time_s, fault.kind, fault.target, fault.field)))


def _all_numbers(values: list[Any]) -> bool:
    """Say whether all are numbers that a float can hold; true and false are none."""
    return all(type(each) in (int, float) and abs(each) < 1e18 for each in values)


def _capability(row: dict[str, Any]) -> Capability:
    rate = row.get("reduce_gib_s")
    capability = Capability(
        tuple(map(str, row["ops"])),
        tuple(map(str, row["dtypes"])),
        int(row["fanin_max"]),
        int(row["memory_bytes"]),
        math.inf if rate is None else float(rate) * GIB,
        bool(row["multicast"]),
        float(row["latency_us"]) / 1e6,
        int(row.get("payload_bytes", Capability.payload_bytes)),
        int(row.get("concurrency", Capability.concurrency)),
        int(row.get("passes", Capability.passes)),
        tuple(map(str, row.get("codecs", Capability.codecs))),
        str(row.get("order", Capability.order)),
        str(row.get("provenance", "")),
    )
    if (
        capability.fanin_max < 1
        or capability.memory_bytes < 0
        or not capability.reduce_rate > 0
        or not 0 <= capability.latency_s < math.inf
        or min(capability.payload_bytes, capability.concurrency, capability.passes) < 1
    ):
        raise ValueError("a figure is out of range")
    if strange := [name for name in capability.codecs if name not in (known := codecs())]:
        raise ValueError(f"'{strange[0]}' is no number format that is known: {', '.join(known)}")
    if capability.order not in ORDERS:
        raise ValueError(f"'{capability.order}' is no order: {', '.join(ORDERS)}")
    return capability
