"""What the printed numbers mean, by release.

The same pair of count and datatype means bytes for all-gather and broadcast in 2.4.2 to 2.21.5 and elements elsewhere;
the operation counter counts operations up to 2.7 and launches from 2.8. Source: ``src/collectives.cc``, ``src/init.cc``
and ``src/enqueue.cc`` of the release tags.
"""

from __future__ import annotations

from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.names import printed_algorithm, printed_protocol

Version = tuple[int, int, int]

DATATYPES: dict[int, tuple[str, int]] = {
    0: ("int8", 1),
    1: ("uint8", 1),
    2: ("int32", 4),
    3: ("uint32", 4),
    4: ("int64", 8),
    5: ("uint64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    9: ("bfloat16", 2),
    10: ("float8_e4m3", 1),
    11: ("float8_e5m2", 1),
}
REDUCE_OPS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
OPERATIONS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "allgatherv": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "sendrecv": "sendrecv",
}
# Operations whose printed count is one rank's share of the nccl-tests size.
PER_RANK_COUNT = frozenset({"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"})
REDUCING = frozenset({"all-reduce", "reduce-scatter", "reduce"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
POINT_TO_POINT = frozenset({"send", "recv"})

_BYTES_FROM: Version = (2, 4, 2)
_BYTES_BELOW: Version = (2, 22, 0)


# No job has more ranks; a larger number is damage, and nothing is sized by it.
MAX_RANKS = 1 << 20


def operation(printed: str) -> str:
    """Return the field's spelling of a printed operation name: ``AllReduce`` -> ``all-reduce``."""
    return OPERATIONS.get(printed.lower(), printed.lower())


def parse_version(text: str) -> Version:
    """Return ``(2, 20, 5)`` for ``2.20.5``; missing parts are zero."""
    parts = [int(part) for part in text.split(".")[:3]]
    parts += [0] * (3 - len(parts))
    return parts[0], parts[1], parts[2]


def counts_bytes(op: str, version: Version | None) -> bool:
    """Say whether this release prints bytes, and datatype 0, for this operation."""
    return op in ("all-gather", "broadcast") and version is not None and _BYTES_FROM <= version < _BYTES_BELOW


def element(op: str, datatype: int, version: Version | None) -> tuple[str | None, int]:
    """Return the element type (None where the release does not tell it) and the bytes per printed count."""
    name, size = DATATYPES.get(datatype, (None, 1))
    if counts_bytes(op, version):
        return None, 1
    if version is None and datatype == 0 and op in ("all-gather", "broadcast"):
        return None, 1  # either int8 elements or bytes: the size is the same
    return name, size


def size_bytes(op: str, count: int, unit_bytes: int, nranks: int) -> int:
    """Return the nccl-tests size column in bytes from the printed count."""
    return count * unit_bytes * (max(nranks, 1) if op in PER_RANK_COUNT else 1)


def algorithm(printed: str) -> str:
    """Return the algorithm's slug from a printed name or number."""
    if printed.isdecimal():
        return printed_algorithm(ALGORITHMS[int(printed)]) if int(printed) < len(ALGORITHMS) else f"algorithm-{printed}"
    return printed_algorithm(printed)


def protocol(printed: str) -> str:
    """Return the protocol's slug from a printed name or number."""
    if printed.isdecimal():
        return PROTOCOLS[int(printed)] if int(printed) < len(PROTOCOLS) else f"protocol-{printed}"
    return printed_protocol(printed)


def sequence_is_printed(version: Version | None) -> bool:
    """Say whether opCount counts single operations, so that it is a sequence number by itself."""
    return version is not None and version < (2, 8, 0)
