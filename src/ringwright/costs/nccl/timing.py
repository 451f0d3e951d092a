"""What a call of NCCL takes on a machine, as sums and maxima of six link numbers: NCCL's structure, measured links.

A machine is two link classes, ``inside`` a node and ``outside`` it, with three numbers each: seconds of a hop, seconds that
a message occupies its sender, seconds per byte (of a GPU inside, of all NICs of a node outside). NCCL's choice of
algorithm, protocol, channels and chunks comes from its release's model; nothing of it is fitted::

    time = serial + max over stages          (each linear in the six numbers and a constant)

What is modelled, and where it comes from in NVIDIA/nccl:

- Protocols: LL sends 2 bytes per byte and LL128 128/120; a Simple hop costs more than an LL hop by what the release's
  latency table says (fences, flags). A channel moves at most what the tables give it.
- Ring: each loop takes the longer of the path of one chunk around all hops and the work of the busiest station. Simple
  cuts a chunk into two slices unless they would be below 32 KiB (``primitives``: a slice is at least step*2/32).
- Messages: the proxy of one GPU sends them one after the other, so channels that leave a node by the same GPU add up.
  With NICs equally far from all GPUs (PHB or worse) the search finds equal channels: one GPU sends all.
- Tree: up and down through a chain of GPUs and floor(lg N) levels with one chunk, then one chunk in each step. A node sends twice
  the data (once for two nodes).
- NVLS: scatter, reduce and gather run one loop behind each other; a byte of an all-reduce costs (1 + 1/h)/0.85 of NVLink
  for h GPUs that are heads: all of a host, 32 at the most of an NVLink domain of several hosts, whose channels also copy
  each byte in and out.
- LL and LL128 pass a chunk on line by line within a node; Simple, and every network hop, when it is there.
- All-to-all: direct messages to all peers, in 128 KiB pieces through the network; a proxy works for each. Send-recv: to the
  next rank alone.

- A message between nodes above what its transport sends eagerly waits for its receiver (``costs.transports``), on the path of
  one chunk; what follows it waits meanwhile.

Left out: congestion in the fabric, stragglers, loading of kernels at first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.costs.nccl.bandwidth import generation
from ringwright.costs.nccl.chunking import Chunking
from ringwright.costs.nccl.constants import Constants, constants
from ringwright.costs.nccl.graphs import NcclSystem, path_at_most
from ringwright.costs.nccl.node_types import NodeType
from ringwright.costs.nccl.selection import NcclChoice, choose, cut, forced_pair
from ringwright.costs.transports import waits_s
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

COLUMNS = ("constant", "inside_hop", "inside_message", "inside_byte", "outside_hop", "outside_message", "outside_byte")
WIRE_BYTES = {"ll": 2.0, "ll128": 128 / 120, "simple": 1.0}
TIMED_GROUPED = ("all-to-all", "send-recv")
SLICE_LEAST_BYTES = 32 << 10
P2P_PIECE_BYTES = 128 << 10
NVLS_EFFICIENCY = 0.85
_LL_CHANNELS = {"volta": 24, "ampere": 24, "hopper": 32, "blackwell": 32}  # over which the LL limit of a GPU is spread
_SIMPLE_CHANNEL_GBS = {"volta": 24.0, "ampere": 24.0, "hopper": 38.7, "blackwell": 48.0}
_LL128_CHANNEL_GBS = {"volta": 20.0, "ampere": 20.0, "hopper": 36.7, "blackwell": 40.0}
_LL_GPU_GBS = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}

Row = tuple[float, float, float, float, float, float, float]
_NONE: Row = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class NcclOverride:
    """What an environment forces on NCCL (NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, NCCL_BUFFSIZE); None leaves its choice."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    buffer_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """Coefficients over :data:`COLUMNS`: what is paid once, and what runs side by side."""

    serial: Row
    parallel: tuple[Row, ...]
    choice: NcclChoice | None = None

    def time_s(self, machine: np.ndarray) -> float:
        """Return seconds for the numbers of a machine (a one first)."""
        import numpy as np

        return float(np.dot(self.serial, machine) + max(np.dot(row, machine) for row in self.parallel))


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The closed form of an operation on a system, at any size."""

    op: str
    kind: NodeType
    system: NcclSystem
    release: str
    forced: NcclOverride | None = None
    transport: str = ""

    def time_s(self, size_bytes: int, machine: Sequence[float]) -> float:
        """Return seconds for the six numbers of a machine; UsageError for what has no closed form."""
        import numpy as np

        held = stages(self.op, size_bytes, self.kind, self.system, self.release, self.forced, self.transport)
        return held.time_s(np.array([1.0, *machine]))


@dataclass(frozen=True, slots=True)
class _Call:
    """One call with what all formulas ask for."""

    op: str
    size: int
    kind: NodeType
    system: NcclSystem
    held: Constants
    choice: NcclChoice
    chunks: Chunking
    transport: str

    @property
    def channels(self) -> int:
        return max(1, self.choice.channels_used)

    @property
    def gpus(self) -> int:
        return max(1, self.system.ranks // self.system.nodes)

    @property
    def wire(self) -> float:
        return WIRE_BYTES[self.choice.protocol]

    @property
    def fan(self) -> float:
        """How much slower a node's network is for the NICs that no channel uses."""
        return max(1.0, self.kind.nics / self.channels)

    @property
    def senders(self) -> int:
        """GPUs of a node whose proxies send to the network."""
        return min(senders(self.channels, self.system), self.kind.nics)

    def beyond_ll(self, hardware: str) -> float:
        """Seconds by which a hop of this protocol is slower than one of LL."""
        return self.held.beyond_us(hardware, self.choice.algorithm, self.choice.protocol) * 1e-6

    def waits_s(self, message_bytes: float) -> float:
        """Seconds that a message between nodes waits for its receiver, of so many bytes of data."""
        return waits_s(self.transport, message_bytes * self.wire)

    def whole(self, hops: int, least: int) -> int:
        """Hops inside nodes after which a chunk must be there before it goes on; LL and LL128 pass on line by line."""
        return hops if self.choice.protocol == "simple" else min(hops, least)

    @property
    def base_s(self) -> float:
        return self.held.base_us(self.choice.algorithm, self.choice.protocol) * 1e-6

    @property
    def channel_byte_s(self) -> float:
        """Seconds per byte of data that one channel takes at the least."""
        return channel_byte_s(self.held, self.system, self.choice.protocol)


def channel_byte_s(held: Constants, system: NcclSystem, protocol: str) -> float:
    """Return the seconds per byte of data that one channel takes at the least."""
    gpu = generation(held, system)
    if protocol == "ll":
        return _LL_CHANNELS[gpu] / (_LL_GPU_GBS[gpu] * 1e9)
    table = _LL128_CHANNEL_GBS if protocol == "ll128" else _SIMPLE_CHANNEL_GBS
    return 1 / (table[gpu] * 1e9)


def nvls_copy_byte_s(held: Constants, system: NcclSystem, channels: int) -> float:
    """Return the seconds per byte of data that the channels of NVLS take for a copy into its buffers and one out of them.

    NCCL registers no user buffers where NVLink joins several hosts (``src/init.cc``, MNNVL), so that both copies are needed.
    """
    return 2 * channel_byte_s(held, system, "simple") / channels


def senders(channels: int, system: NcclSystem) -> int:
    """Return the GPUs of a node whose proxies send to the network, as far as channels go."""
    if system.nodes < 2 or not path_at_most(system.graphs.ring.type_inter, "PXN"):
        return 1
    return max(1, min(channels, system.ranks // system.nodes))


def stages(
    op: str,
    size_bytes: int,
    kind: NodeType,
    system: NcclSystem,
    release: str,
    forced: NcclOverride | None = None,
    transport: str = "",
) -> Stages:
    """Return the stages of ``op`` on ``size_bytes`` (nccl-tests size column); UsageError for what NCCL has no kernel for.

    ``transport`` carries messages between nodes; of one that is not known all messages are of one class.
    """
    size = max(1, size_bytes)
    if op == "all-to-all":
        return _all_to_all(size, system, constants(release), transport)
    if op == "send-recv":
        return _send_recv(size, kind, system, constants(release), transport)
    choice = choose(op, size, system, release)
    if forced is not None:
        algorithm, protocol = choice.algorithm, choice.protocol
        if forced.algorithm or forced.protocol:
            algorithm, protocol = forced_pair(choice, system, release, forced.algorithm, forced.protocol)
        choice = replace(
            choice,
            algorithm=algorithm,
            protocol=protocol,
            channels_used=forced.channels or choice.channels_used,
            buffer_bytes=forced.buffer_bytes or 0,
        )
    call = _Call(op, size, kind, system, constants(release), choice, cut(choice, system), transport)
    if not has_form(op, choice.algorithm):
        raise UsageError(
            f"there is no timing for {choice.algorithm} {op}",
            remedy="all-reduce, all-gather, reduce-scatter over rings, trees and NVLS, all-to-all and send-recv have one",
        )
    return replace(_FORMULAS[choice.algorithm](call), choice=choice)


def has_form(op: str, algorithm: str) -> bool:
    """Return whether an operation has a closed form by an algorithm of NCCL (``ring``, ``tree``, ``nvls``, ``nvls_tree``)."""
    return algorithm in _FORMULAS and op not in ("broadcast", "reduce")


def _row(constant: float = 0.0, inside: tuple[float, ...] = (), outside: tuple[float, ...] = ()) -> Row:
    """Return a row from (hops, messages, bytes) of each class."""
    a, b, c = (*inside, 0.0, 0.0, 0.0)[:3]
    d, e, f = (*outside, 0.0, 0.0, 0.0)[:3]
    return (constant, a, b, c, d, e, f)


def _ring(call: _Call) -> Stages:
    """Add the loops up: full ones, and the rest."""
    full, rest = divmod(call.size, call.chunks.loop_bytes)
    loops = [(count, size) for count, size in ((full, call.chunks.loop_bytes), (1, rest)) if count and size]
    rows = [[_NONE, _NONE, _NONE]]
    for count, size in loops:
        rows.append([_times(count, row) for row in _ring_loop(call, size)])
    return Stages(_row(call.base_s), tuple(_sum(stage) for stage in zip(*rows, strict=True)))


def _ring_loop(call: _Call, loop_bytes: int) -> tuple[Row, Row, Row]:
    """Return (one chunk's way round, a GPU's NVLink, a node's network) of one loop."""
    nodes, channels = call.system.nodes, call.channels
    rounds = 2 if call.op == "all-reduce" else 1
    steps = rounds * (call.system.ranks - 1)
    outer = rounds * (nodes - 1)
    inner = steps - outer
    chunk = loop_bytes / (channels * call.system.ranks)
    sliced = call.choice.protocol == "simple" and call.chunks.slice_bytes < call.chunks.chunk_bytes
    slices = 2 if sliced and chunk > SLICE_LEAST_BYTES else 1
    wire = chunk * call.wire * channels
    constant = inner * call.beyond_ll("nvlink") + outer * call.beyond_ll("net")
    whole = call.whole(inner, rounds)
    constant += (whole + outer) * chunk / slices * call.channel_byte_s + outer * call.waits_s(chunk / slices)
    path = _row(constant, (inner, 0.0, whole * wire / slices), (outer, 0.0, outer * wire / slices * call.fan))
    inside = _row(0.0, (0.0, steps * slices, steps * wire))
    messages = steps * slices * channels / call.senders
    outside = _row(0.0, (), (0.0, messages, steps * wire * call.fan)) if nodes > 1 else _NONE
    return path, inside, outside


def _tree(call: _Call) -> Stages:
    nodes, gpus, channels = call.system.nodes, call.gpus, call.channels
    levels = nodes.bit_length() - 1
    load = 0.0 if nodes < 2 else 1.0 if nodes == 2 else 2.0  # times the data that a node sends
    chunk_steps = max(1, -(-call.size // (channels * call.chunks.chunk_bytes)))
    chunk = call.size / (channels * chunk_steps)
    wire = chunk * call.wire * channels
    inner, outer = 2 * (gpus - 1), 2 * levels
    constant = call.base_s + inner * call.beyond_ll("nvlink") + outer * call.beyond_ll("net")
    whole = call.whole(inner, 2)
    constant += (whole + outer) * chunk * call.channel_byte_s + outer * call.waits_s(chunk)
    half = 1.0 if nodes == 2 else 0.5
    first = _row(
        constant, (inner, 0.0, whole * wire), (outer, 0.0, outer * wire * call.fan * (half if nodes == 2 else 1.0))
    )
    later = call.size * call.wire * (chunk_steps - 1) / chunk_steps
    inside = _row(0.0, (0.0, 2 * chunk_steps, 2 * later if gpus > 1 else 0.0))
    outside = _row(0.0, (), (0.0, load * chunk_steps * channels / call.senders, load * later * call.fan))
    return Stages(first, (inside, outside))


def _nvls(call: _Call) -> Stages:
    nodes, gpus, channels = call.system.nodes, call.gpus, call.channels
    levels = nodes.bit_length() - 1
    load = 0.0 if nodes < 2 else 1.0 if nodes == 2 else 2.0
    name = call.choice.algorithm
    net_us = call.held.hop_us("net", name, "simple") - call.held.hop_us("net", "tree", "ll") if nodes > 1 else 0.0
    loops = max(1, call.chunks.loops)
    loop = min(call.size, call.chunks.loop_bytes)
    heads = call.system.graphs.nvls.channels if call.system.mnnvl else gpus
    per_byte = (1 + (1 / heads if call.op == "all-reduce" else 0)) / NVLS_EFFICIENCY
    constant = (
        call.base_s
        + call.held.hop_us("nvlink", name, "simple") * 1e-6
        + 2 * levels * (net_us * 1e-6 + call.waits_s(loop / channels))
    )
    first = _row(constant, (1.0, 0.0, loop * per_byte), (2 * levels, 0.0, levels * loop))
    inside = _row(0.0, (0.0, 0.0, call.size * per_byte))
    outside = _row(0.0, (), (0.0, 2 * load * loops * channels / call.senders, load * call.size))
    if call.system.mnnvl:
        copies = _row(call.size * nvls_copy_byte_s(call.held, call.system, channels))
        return Stages(first, (inside, outside, copies))
    return Stages(first, (inside, outside))


def _all_to_all(size: int, system: NcclSystem, held: Constants, transport: str) -> Stages:
    """Direct messages; the first one's hop is paid once, all others follow as fast as their sender lets them.

    A proxy posts the first piece for each peer, then bytes flow; the further pieces are posted meanwhile, and take longer than
    the bytes where posting is slow.
    """
    gpus, peers = max(1, system.ranks // system.nodes), system.ranks
    each = size / peers
    hardware, away = ("net", peers - gpus) if system.nodes > 1 else ("nvlink", 0)
    extra_us = held.beyond_us(hardware, "ring", "simple")
    first_s = waits_s(transport, min(each, P2P_PIECE_BYTES)) if system.nodes > 1 else 0.0
    constant = (held.base_us("ring", "simple") + extra_us) * 1e-6 + first_s
    serial = _row(constant, (1.0,), (1.0,) if system.nodes > 1 else ())
    pieces = max(1.0, -(-each // P2P_PIECE_BYTES))
    inside = _row(0.0, (0.0, gpus - 1, (gpus - 1) * each))
    peers_first = _row(0.0, (), (0.0, away, gpus * away * each))
    posted = _row(0.0, (), (0.0, away * pieces))
    return Stages(serial, (inside, peers_first, posted))


def _send_recv(size: int, kind: NodeType, system: NcclSystem, held: Constants, transport: str) -> Stages:
    """Each rank to the next one: of a node one GPU sends out, by the NICs that are its own."""
    gpus = max(1, system.ranks // system.nodes)
    hardware = "net" if system.nodes > 1 else "nvlink"
    base_s = (held.base_us("ring", "simple") + held.beyond_us(hardware, "ring", "simple")) * 1e-6
    pieces = max(1.0, -(-size // P2P_PIECE_BYTES))
    inside = _row(0.0, (0.0, pieces, float(size) if gpus > 1 else 0.0))
    others = kind.nics / max(1, kind.nics // gpus)
    if system.nodes == 1:
        return Stages(_row(base_s, (1.0,)), (inside,))
    base_s += waits_s(transport, min(size, P2P_PIECE_BYTES))
    return Stages(_row(base_s, (), (1.0,)), (inside, _row(0.0, (), (0.0, pieces, size * others))))


def _times(count: float, row: Row) -> Row:
    return tuple(count * value for value in row)  # type: ignore[return-value]


def _sum(rows: tuple[Row, ...]) -> Row:
    return tuple(sum(column) for column in zip(*rows, strict=True))


_FORMULAS = {"ring": _ring, "tree": _tree, "nvls": _nvls, "nvls_tree": _nvls}
