"""Benchmark tables of a Trace with what they say of the machine: the side that :mod:`ringwright.analysis.expected` compares."""

from __future__ import annotations

import bisect
import math
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ringwright.analysis.bandwidth import bandwidth, bus_factor
from ringwright.analysis.library_of_calls import OF_NCCL, UNKNOWN, made_by
from ringwright.analysis.table_claims import TableClaims
from ringwright.costs import nccl
from ringwright.costs.transports import carrier
from ringwright.ground.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from ringwright.analysis.document import Row
    from ringwright.costs.nccl import NcclSystem
    from ringwright.model.trace import Trace

_GPU_NOISE = re.compile(r"\b(?:nvidia|tesla|amd|instinct|graphics)\b|\b\d+\s?GB\b|HBM\d?e?|\s+")
_GPU_MEMORY = re.compile(
    r"-?(?<!\d)\d+GB", re.IGNORECASE
)  # from the first digit on, or many digits are tried from each
_STEADY = 1.5  # an out-of-place time this much longer than the in-place one paid for loading a kernel
_CLAIMED = ("gpu", "release", "hosts", "nodes", "library", "warm-up calls", "calls a size", "components")
_OF_LOG = ("platform", "network")  # which a log says of all that it holds
_NODE_TYPES = {
    ("A100", 8): "dgx-a100",
    ("H100", 8): "dgx-h100",
    ("H200", 8): "dgx-h100",
    ("H800", 8): "dgx-h100",
    ("V100", 8): "dgx1",
    ("B200", 8): "dgx-b200",
    ("A100", 4): "polaris",
    ("GB200", 4): "gb200",
    ("L40S", 4): "pcie",
}
# Where a log names the network: the box of so many such GPUs that has it, if its NICs are others than the standard one's.
_ON_NETWORK = {("A100", 8, "efa"): "p4d"}


@dataclass
class BenchmarkTimes:
    """One benchmark, or one operation of a job: seconds per size, and what is known of where it ran."""

    name: str
    op: str
    nranks: int | None
    nnodes: int | None
    kind: str  # benchmark or job
    source: str
    times_s: dict[int, float] = field(default_factory=dict)
    inplace_s: dict[int, float] = field(default_factory=dict)
    gpu: str = ""
    release: str = ""
    hosts: frozenset[str] = frozenset()
    variant: str = ""
    platform: str = ""  # and network: as the log that holds the table says, empty where it is silent
    network: str = ""
    library: str = UNKNOWN  # which made its calls, as ``library_of_calls`` names it
    software: str = ""  # which MPI, as the line that started the ranks tells
    components: str = ""  # of MPI's collectives, as that line sets them
    warmups: int | None = None  # calls of each size before those that are timed, and those
    calls: int | None = None

    @property
    def is_of_nccl(self) -> bool:
        """Whether NCCL's model and programs may speak of it: NCCL or RCCL made its calls, or nobody says who did."""
        return self.library in (*OF_NCCL, UNKNOWN)

    @property
    def label(self) -> str:
        """Name for a sentence."""
        if self.kind == "benchmark":
            return f"{self.op} of {self.name}"
        return f"{self.op} in {'a' if self.name.startswith('group ') else 'group'} {self.name}"  # "group not named"

    def steady_s(self, size: int) -> float:
        """Return the time of a size, without what a first call costs where the in-place run shows it."""
        out, inside = self.times_s.get(size), self.inplace_s.get(size)
        if out is None:
            return self.inplace_s[size]
        return inside if inside is not None and inside < out / _STEADY else out

    @cached_property
    def sizes(self) -> list[int]:
        """Sizes above 0, smallest first; asked for when all are known."""
        return sorted(size for size in self.times_s.keys() | self.inplace_s.keys() if size > 0)

    def at(self, size: int) -> float | None:
        """Return the time of any size within the measured ones, between neighbours on a log-log line; else None."""
        sizes = self.sizes
        if not sizes or not sizes[0] <= size <= sizes[-1]:
            return None
        index = bisect.bisect_left(sizes, size)
        high = sizes[index]
        if high == size:
            return self.steady_s(size)
        low = sizes[index - 1]
        share = math.log(size / low) / math.log(high / low)
        return math.exp((1 - share) * math.log(self.steady_s(low)) + share * math.log(self.steady_s(high)))

    def bus_gbs(self, size: int) -> float | None:
        """Return the bus bandwidth of a size (algorithm bandwidth where the group's size is not known)."""
        time_s = self.at(size)
        return None if time_s is None else size / time_s / 1e9 * (bus_factor(self.op, self.nranks) or 1.0)


def tables(trace: Trace, rates: list[Row] | None = None) -> list[BenchmarkTimes]:
    """Return the tables of a Trace, in the order in which they were read; ``rates`` is its bandwidth where that is known."""
    claims = TableClaims(trace, (*_CLAIMED, *_OF_LOG))
    source = str(trace.meta.get("source", ""))
    groups: dict[tuple[Any, ...], BenchmarkTimes] = {}
    for entry in bandwidth(trace) if rates is None else rates:
        if entry["law"] or not entry["time_us"]:  # 0 to the digits shown is no time to divide by
            continue
        key = tuple(entry[name] for name in ("kind", "table", "op", "nranks", "datatype", "algorithm"))
        if entry["kind"] == "job":
            key = (*key[:4], None, None)  # NCCL chooses per size: one curve of a job may hold several algorithms
        table = groups.get(key)
        if table is None:
            table = BenchmarkTimes(
                entry["table"], entry["op"] or "unknown", entry["nranks"], entry["nnodes"], entry["kind"], source
            )
            # of a benchmark all rows of a table have it: it was forced; a job's calls only say which one was chosen
            table.variant = (entry["algorithm"] or "") if entry["kind"] == "benchmark" else ""
            table.library = made_by(trace.meta)
            _describe(table, claims, trace)
            groups[key] = table
        side = table.inplace_s if entry["task"] == "in-place" else table.times_s
        time_s = entry["time_us"] * 1e-6
        side[entry["size_bytes"]] = min(time_s, side.get(entry["size_bytes"], time_s))
    if len({table.name.partition(" ")[0] for table in groups.values()}) == 1:  # else whose words they are is not known
        for table in groups.values():
            table.platform, table.network = (_undisputed(claims, name) for name in _OF_LOG)
    return list(groups.values())


def _undisputed(claims: TableClaims, field: str) -> str:
    told = claims.job(field)
    return "" if told is None or told.is_disputed else told.value


def _describe(table: BenchmarkTimes, claims: TableClaims, trace: Trace) -> None:
    """Take GPU, release and hosts from the claims of this table's source; of a job from the first of all."""
    every = {name: claims.job(name) if table.kind == "job" else claims.table(table.name, name) for name in _CLAIMED}
    known = {name: told.value for name, told in every.items() if told is not None}
    releases = trace.meta.get("nccl_versions") or []
    table.gpu = known.get("gpu", "")
    table.release = known.get("release", "") or (str(releases[0]) if len(releases) == 1 and table.kind == "job" else "")
    table.software, table.components = known.get("library", ""), known.get("components", "")
    table.warmups, table.calls = (
        int(said) if (said := known.get(name, "")).isdecimal() else None for name in ("warm-up calls", "calls a size")
    )
    table.hosts = frozenset(known.get("hosts", "").split())
    if table.nnodes is None and known.get("nodes", "").isdecimal():
        table.nnodes = int(known["nodes"])


@lru_cache(maxsize=1024)
def gpu_model(spelled: str) -> str:
    """Return the model of a GPU: ``NVIDIA A100-SXM4-40GB`` -> A100-SXM4."""
    bare = _GPU_NOISE.sub(" ", _GPU_MEMORY.sub(" ", spelled).replace("NVIDIA", "nvidia"))
    return "-".join(bare.strip(" -").split()).upper().strip("-")


def same_gpu(one: str, other: str) -> bool:
    """Say whether two GPUs are of one model; H100 agrees with H100-SXM5 but not with H100-PCIE."""
    return same_model(gpu_model(one), gpu_model(other))


def same_model(a: str, b: str) -> bool:
    """Say whether two models, as :func:`gpu_model` spells them, are one."""
    if not a or not b:
        return False
    if a == b:
        return True
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer.startswith(f"{shorter}-") and "PCIE" not in longer


def system_of(table: BenchmarkTimes, box: str | None) -> tuple[NcclSystem, str]:
    """Return the machine for NCCL's model and its ground; UsageError says in words what is not known.

    ``box`` as in ``costs.nccl.placed`` (``dgx-a100:2``). Else GPU and GPUs per node pick a standard box, which is assumed.
    """
    if box:
        system = nccl.placed(box)[1]
        if table.nranks and system.ranks != table.nranks:
            raise UsageError(
                f"{box} has {system.ranks} ranks, the table {table.nranks}", remedy="name a box of as many ranks"
            )
        return system, f"box {box} as given"
    nodes = table.nnodes
    if not table.gpu or not table.nranks or not nodes or table.nranks % nodes:
        lacking = [word for word, value in (("GPU", table.gpu), ("ranks", table.nranks), ("nodes", nodes)) if not value]
        raise UsageError(
            f"the table does not name its {' and '.join(lacking) or 'GPUs per node'}", remedy="name the box"
        )
    each, model = table.nranks // nodes, gpu_model(table.gpu).split("-")[0]
    name, why = _box_of(table, model, each)
    if name:
        return nccl.placed(f"{name}:{nodes}")[1], f"{each} x {model} a node taken as {name}:{nodes}{why}"
    raise UsageError(f"no standard box has {each} x {model} a node", remedy="name the box")


def _box_of(table: BenchmarkTimes, model: str, each: int) -> tuple[str, str]:
    """Return the box by what the log says of platform and network, else the standard one of so many such GPUs; and why."""
    named = table.platform.partition(".")[0]
    if named in nccl.NODE_TYPES and nccl.NODE_TYPES[named].gpus == each:
        return named, f", for its log names the platform {table.platform}"
    over = carrier(table.network, "") if table.network else ""
    if (name := _ON_NETWORK.get((model, each, over))) is not None:
        return name, f", for its log names the network {table.network}"
    return _NODE_TYPES.get((model, each), ""), ""


def release_of(table: BenchmarkTimes, release: str | None) -> str:
    """Return a release that NCCL's model knows; UsageError where none is known."""
    wanted = release or table.release
    if not wanted:
        raise UsageError("the table does not name NCCL's release", remedy="give the release")
    try:
        nccl.constants(wanted)
    except RingwrightError as error:
        raise UsageError(error.what, remedy="give another release") from error
    return wanted
