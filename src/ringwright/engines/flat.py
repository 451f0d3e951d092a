"""A Program laid out for an engine: messages, their routes, and what each waits for, as arrays.

Pieces of one step with the same source, target and channel are one message. The order follows from the data (see
``hazards``) or, for declared programs, from their thread blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.costs.transports import TRANSPORTS
from ringwright.engines import loops
from ringwright.engines.hazards import Edges, loop_edges
from ringwright.engines.memory import shortage
from ringwright.engines.messages import MessageGraph, Pieces
from ringwright.engines.multicast import branched
from ringwright.engines.tree_flows import streams
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import PS
from ringwright.model.program import ADDING, Op
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from ringwright.engines.hazards import MessageOrder
    from ringwright.engines.machine import Machine
    from ringwright.model.program import Block, Program, Step

MOST_PIECES = 60_000_000
AT_ONCE = 10_000  # moves of several steps that are laid out together: one call for each would cost more than its work


def flatten(program: Program, machine: Machine) -> MessageGraph:
    """Lay a program out on a machine; raise InfeasibleError where it is too large to hold."""
    machine = machine.carrying(program)
    pieces = gather(program)
    schedule = program.schedule
    order = in_order(pieces) if schedule is None else Edges(*schedule.edges()).order(len(pieces.src))
    slot_of = places(program)
    return assemble(machine, pieces, order, slot_of[pieces.src], slot_of[pieces.dst])


def in_order(pieces: Pieces) -> MessageOrder:
    """Return what waits for what: after the data, and loop after loop on each rank's channel."""
    order = loops.order(pieces)
    return order if pieces.loop is None else order.with_edges(*loop_edges(pieces, len(order.waits)))


def assemble(machine: Machine, pieces: Pieces, order: MessageOrder, src: np.ndarray, dst: np.ndarray) -> MessageGraph:
    """Put messages between topology nodes on their routes."""
    import numpy as np

    hop_starts, hops = routes(machine, src, dst, pieces.adds)
    delay, byte_ps = delays(machine, hop_starts, hops)
    carried = on_the_wire(machine, pieces.size_bytes, src, dst)
    if pieces.channel is not None:
        hop_starts, hops = paced(machine, pieces.channel, src, dst, hop_starts, hops)
    flat = MessageGraph(
        src,
        dst,
        carried,
        pieces.adds,
        pieces.step,
        hop_starts,
        hops.astype(np.int32),
        order.next_starts,
        order.nexts,
        order.waits,
        delay + copied(pieces.size_bytes, byte_ps) + handshakes(machine, src, dst, carried),
        **streams(pieces, src >= machine.topology.n_ranks, dst >= machine.topology.n_ranks),
    )
    return flat if pieces.stream is None else branched(flat, pieces.stream, machine.sends)


def places(program: Program) -> np.ndarray:
    """Return the topology node of each program node. int64 of shape (n_nodes,)."""
    import numpy as np

    return np.concatenate((np.asarray(program.collective.group, np.int64), np.array(program.aggregators, np.int64)))


def gather(program: Program) -> Pieces:
    """Return all pieces, messages numbered in program order."""
    import numpy as np

    _require_room(program)
    rows: list[tuple[np.ndarray, ...]] = []
    numbers: list[tuple[int, int, int]] = []  # step, loop, messages
    streams: list[tuple[int, np.ndarray]] = []
    messages = 0
    for held in _together(program.steps()):
        blocks = tuple(block for _, step in held for block in step.blocks)
        places_of = [number for number, (_, step) in enumerate(held) for _ in step.blocks]
        *columns, turn = step_pieces(program, blocks, places_of)
        src, dst, size, adds, channel, owner, reads, writes = columns
        rows.append((src, dst, size, adds, channel, owner + messages, reads, writes))
        if any(block.multicast for block in blocks):
            streams.append((messages, _streams(program, held[0][1], src, owner)))
        counted = np.bincount(turn, minlength=len(held)).tolist()
        numbers += [(number, step.loop, count) for (number, step), count in zip(held, counted, strict=True)]
        messages += len(src)
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0, np.int64)] * 8
    src, dst, size, adds, channel, owner, reads, writes = columns
    step_of, loop_of, counts = np.array(numbers, np.int64).reshape(-1, 3).T
    steps, turns = (np.repeat(each.astype(np.int32), counts) for each in (step_of, loop_of))
    stream = np.full(messages, -1, np.int64)
    for begin, ids in streams:
        stream[begin : begin + len(ids)] = np.where(ids >= 0, ids + begin, -1)
    return Pieces(
        owner,
        steps,
        src,
        dst,
        size,
        adds.astype(bool),
        reads,
        writes,
        channel,
        turns if turns.any() else None,
        stream if streams else None,
    )


def _together(steps: Iterable[Step]) -> Iterator[list[tuple[int, Step]]]:
    """Yield steps with their numbers, several small ones at a time; one that is multicast stands alone, an empty one nowhere."""
    held: list[tuple[int, Step]] = []
    count = 0
    for number, step in enumerate(steps):
        alone = any(block.multicast for block in step.blocks)
        if held and (alone or count >= AT_ONCE):
            yield held
            held, count = [], 0
        if not step.count:
            continue
        held.append((number, step))
        count += step.count
        if alone:
            yield held
            held, count = [], 0
    if held:
        yield held


def _require_room(program: Program) -> None:
    """Raise InfeasibleError before anything is laid out that cannot be held."""
    total = 0
    for step in program.steps():
        total += sum(block.count * block.span for block in step.blocks)
        if total > MOST_PIECES:
            break
    why = f"it is more than {MOST_PIECES:,} moves" if total > MOST_PIECES else shortage(total)
    if why:
        raise InfeasibleError(
            f"{program.name} on {program.p:,} ranks cannot be laid out: {why}",
            remedy="--engine closed-form, which follows no single message, or a fabric on which it folds",
        )


def step_pieces(program: Program, blocks: tuple[Block, ...], turns: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
    """Return one step's messages (src, dst, bytes, adds, channel) and pieces (message, reads, writes); each message's turn last.

    int64 and, of adds, bool: the first five and the last of shape (messages,), the others of shape (pieces,). ``turns`` has the
    turn of each block, where they are of several steps.
    """
    import numpy as np

    turns = turns or [0] * len(blocks)
    parts = [_block_pieces(block) for block in blocks]
    columns = parts[0] if len(parts) == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]
    src, dst, chunk, to = columns
    counts = [len(part[0]) for part in parts]
    kinds = [(_channel(block), block.op in ADDING, turn) for block, turn in zip(blocks, turns, strict=True)]
    channel, adds, turn = (np.repeat(np.array(column), counts) for column in zip(*kinds, strict=True))
    size, slots = program.layout.bytes_of(chunk), program.layout.slots
    reads, writes = src * slots + chunk, dst * slots + to
    least = min(kind[0] for kind in kinds)
    lanes = max(kind[0] for kind in kinds) - least + 1
    key = ((turn * lanes + (channel - least)) * program.n_nodes + src) * program.n_nodes + dst
    in_rising = np.sort(key)
    if not (in_rising[1:] == in_rising[:-1]).any():  # as in most steps: every piece is a message of its own
        return src, dst, size.astype(np.int64, copy=False), adds, channel, np.arange(len(key)), reads, writes, turn
    _, first, owner = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")  # messages in the order in which the program names them
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    owner, first = rank[owner], first[order]
    sums = np.bincount(owner, weights=size, minlength=len(first)).astype(np.int64)
    added = np.bincount(owner, weights=adds, minlength=len(first)) > 0
    return src[first], dst[first], sums, added, channel[first], owner, reads, writes, turn[first]


def _streams(program: Program, step: Step, src: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the stream of each message of a step: the first message of the same source and channel, -1 for no multicast."""
    import numpy as np

    counts = [block.count * block.span for block in step.blocks]
    copied = np.repeat([block.multicast for block in step.blocks], counts)
    channel = np.repeat([block.channel for block in step.blocks], counts)
    all_copied = np.bincount(owner, weights=~copied, minlength=len(src)) == 0
    channels = np.zeros(len(src), np.int64)
    channels[owner] = channel
    _, first, stream = np.unique(
        (channels * program.n_nodes + src) * 2 + all_copied, return_index=True, return_inverse=True
    )
    return np.where(all_copied, first[stream], -1)


def _channel(block: Block) -> int:
    """Return the channel of a block's messages; copies within a rank have channels of their own."""
    return block.channel if block.op is not Op.COPY else -1 - block.channel


def _block_pieces(block: Block) -> tuple[np.ndarray, ...]:
    """Return source, target, and the slots at both of each piece of a block. int64 each of shape (pieces,)."""
    import numpy as np

    src, dst, chunk, to = block.arrays()
    span = block.span
    if span == 1:
        return src, dst, chunk, to
    further = np.arange(span)
    chunk, to = ((start[:, None] + further).reshape(-1) for start in (chunk, to))
    return np.repeat(src, span), np.repeat(dst, span), chunk, to


def routes(machine: Machine, src: np.ndarray, dst: np.ndarray, adds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the resources of each message: sender, links, each followed by its shared capacities, receiver, reduction unit.

    int64 starts of shape (messages + 1,), and int64 resources of shape (hops,).
    """
    import numpy as np

    top = machine.topology
    keys = src * top.n_nodes + dst
    pairs, which = np.unique(keys, return_inverse=True)
    starts, links = top.routes(pairs // top.n_nodes, pairs % top.n_nodes)
    if top.groups:
        starts, links = _with_groups(machine, starts, links)
    if machine.sends.any():
        starts, links = _with_ends(machine, pairs // top.n_nodes, pairs % top.n_nodes, starts, links)
    lengths = np.diff(starts)[which]
    extra = adds & (machine.reducer[dst] >= 0)
    ends = np.concatenate(([0], np.cumsum(lengths + extra)))
    hops = np.empty(ends[-1], np.int64)
    inner = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    hops[np.repeat(ends[:-1], lengths) + inner] = links[np.repeat(starts[which], lengths) + inner]
    hops[ends[1:][extra] - 1] = machine.reducer[dst[extra]]
    return ends, hops


def _with_groups(machine: Machine, starts: np.ndarray, links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put behind each link the shared capacities it draws on."""
    import numpy as np

    top = machine.topology
    bounds, owners = top.memberships
    extra = bounds[links + 1] - bounds[links]
    offset = np.arange(len(links)) + np.cumsum(extra) - extra
    out = np.empty(len(links) + extra.sum(), np.int64)
    out[offset] = links
    inner = np.arange(extra.sum()) - np.repeat(np.cumsum(extra) - extra, extra)
    out[np.repeat(offset + 1, extra) + inner] = top.n_links + owners[np.repeat(bounds[links], extra) + inner]
    total = np.concatenate(([0], np.cumsum(extra + 1)))
    return total[starts], out


def paced(
    machine: Machine, channel: np.ndarray, src: np.ndarray, dst: np.ndarray, starts: np.ndarray, hops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return routes between topology nodes with the resources of streams in front of their moves, and behind them.

    int64 starts of shape (messages + 1,), and int64 resources of shape (hops,).
    """
    import numpy as np

    pacers = machine.pacers
    if pacers is None or not len(src):
        return starts, hops
    nodes, channels = int(max(src.max(), dst.max())) + 1, int(pacers.channel.max()) + 1
    known = (pacers.src < nodes) & (pacers.dst < nodes)
    keys = ((pacers.src * nodes + pacers.dst) * channels + pacers.channel)[known]
    order = np.argsort(keys)
    wanted = (src * nodes + dst) * channels + channel
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    mine = (keys[order][at] == wanted) & (channel >= 0) & (channel < channels)
    for column, offset in ((pacers.front, 0), (pacers.behind, 1)):
        resource = np.where(mine, column[known][order][at], -1)
        rows = np.flatnonzero(resource >= 0)
        starts, hops = _inserted(starts, hops, rows, resource[rows], offset)
    return starts, hops


def on_the_wire(machine: Machine, size_bytes: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return the bytes that links carry between topology nodes: the data in its number format, and the flags that go with it.

    int64 of the shape of ``size_bytes``.
    """
    import numpy as np

    factor = machine.software.wire_factor
    if machine.coded:
        from ringwright.engines.wire_width import coded

        return np.ceil(size_bytes * (factor * coded(machine.coded, src, dst))).astype(np.int64)
    return size_bytes if factor == 1.0 else np.ceil(size_bytes * factor).astype(np.int64)


def copied(size_bytes: np.ndarray, byte_ps: np.ndarray) -> np.ndarray:
    """Return the ps that a channel's threads spend on messages of ``size_bytes`` of data, besides the time on the wire.

    int64 of the shape of ``size_bytes``.
    """
    import numpy as np

    worked: np.ndarray = np.rint(size_bytes * byte_ps).astype(np.int64)
    return worked


def delays(machine: Machine, starts: np.ndarray, hops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each message's software cost that only delays it (no resource is busy meanwhile), in ps and in ps per byte of data.

    int64 and float64 of shape (messages,).
    """
    import numpy as np

    delay, byte_ps = np.zeros(len(starts) - 1, np.int64), np.zeros(len(starts) - 1)
    used = machine.software
    full = np.flatnonzero(np.diff(starts))
    if not len(full):
        return delay, byte_ps
    begin = starts[:-1][full]
    if used.message_s:
        delay[full] = np.rint(np.maximum.reduceat(_priced(machine, used.message_s, hops), begin)).astype(np.int64)
        delay[full[machine.sends[hops[begin]]]] = 0  # it is the sender's latency
    if used.beyond_s:
        delay[full] += np.rint(np.maximum.reduceat(_priced(machine, used.beyond_s, hops), begin)).astype(np.int64)
    if used.byte_s:
        byte_ps[full] = np.maximum.reduceat(_priced(machine, used.byte_s, hops), begin)
    return delay, byte_ps


def handshakes(machine: Machine, src: np.ndarray, dst: np.ndarray, size_bytes: np.ndarray) -> np.ndarray:
    """Return the ps that each message from rank to rank between nodes waits for its receiver, by what it has on the wire.

    Its transport sends up to a number of bytes eagerly. int64 of the shape of ``size_bytes``; ``src`` and ``dst`` are of the
    topology.
    """
    import numpy as np

    top = machine.topology
    carrier, domains = TRANSPORTS.get(top.transport), top.domains
    waits = np.zeros(len(size_bytes), np.int64)
    if carrier is None or not carrier.handshake_s or domains is None:
        return waits
    asks = np.flatnonzero((size_bytes > carrier.eager_bytes) & (src < top.n_ranks) & (dst < top.n_ranks))
    waits[asks[domains[src[asks]] != domains[dst[asks]]]] = round(carrier.handshake_s * PS)
    return waits


def _priced(machine: Machine, costs: Mapping[str, float], hops: np.ndarray) -> np.ndarray:
    """Return the cost in ps of the class of each hop, 0 for what is no link."""
    import numpy as np

    top = machine.topology
    cost = np.array([costs.get(name, 0.0) * PS for name in top.classes] + [0.0])
    of = np.where(hops < top.n_links, top.link_class[np.minimum(hops, top.n_links - 1)].astype(np.int64), -1)
    prices: np.ndarray = cost[of]
    return prices


def _with_ends(
    machine: Machine, src: np.ndarray, dst: np.ndarray, starts: np.ndarray, hops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Put the sender of the dearest class on each route in front of it, where that class has one, and its receiver behind it."""
    import numpy as np

    top = machine.topology
    full = np.flatnonzero(np.diff(starts))
    if not len(full):
        return starts, hops
    cost = _priced(machine, machine.software.message_s, hops)
    route = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    ranked = np.lexsort((np.arange(len(hops)), -cost, route))  # the first of the dearest comes first on each route
    dearest = hops[ranked[starts[:-1][full]]]
    full, dearest = full[dearest < top.n_links], dearest[dearest < top.n_links]
    first, last = _nics(machine, starts, hops)
    for end, nic, of, behind in ((src, first, machine.sender, 0), (dst, last, machine.receiver, 1)):
        ranks = np.flatnonzero(end[full] < top.n_ranks)
        through, kind = full[ranks], top.link_class[dearest[ranks]]
        processor = np.where(nic[through] < 0, -1, of[nic[through], kind])  # that of the NIC, where it has one
        processor = np.where(processor < 0, of[end[through], kind], processor)
        starts, hops = _inserted(starts, hops, through[processor >= 0], processor[processor >= 0], behind)
    return starts, hops


def _nics(machine: Machine, starts: np.ndarray, hops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first NIC that each route leaves and the last one, -1 for none. Both int64 of shape (routes,)."""
    import numpy as np

    top = machine.topology
    first = np.full(len(starts) - 1, -1, np.int64)
    last = first.copy()
    links = np.flatnonzero(hops < top.n_links)
    at = links[top.kinds[top.src[hops[links]]] == NIC]
    for nic, order in ((last, at), (first, at[::-1])):  # of several on a route the one that comes last stays
        nic[np.searchsorted(starts, order, side="right") - 1] = top.src[hops[order]]
    return first, last


def _inserted(
    starts: np.ndarray, hops: np.ndarray, routes: np.ndarray, further: np.ndarray, behind: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return routes with one more hop in front of some, or ``behind`` them (1)."""
    import numpy as np

    return starts + np.searchsorted(routes, np.arange(len(starts))), np.insert(hops, starts[routes + behind], further)
