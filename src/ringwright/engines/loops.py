"""Which loops run: the compiled ones where a build is at hand, else their Python twins, with equal results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.event_loop import simulate_events
from ringwright.engines.flow_loop import classes, simulate_flows
from ringwright.engines.hazards import MessageOrder, hazards
from ringwright.native import engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph, Pieces


def events(flat: MessageGraph, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join (see event_loop.simulate_events).

    Both int64 ps of shape (messages + joins,).
    """
    if engine is None:
        return simulate_events(flat, machine)
    start, end = engine.events(*_messages(flat), *_forks(flat), *_resources(machine))
    return start, end


def flows(flat: MessageGraph, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join (see flow_loop.simulate_flows).

    Both int64 ps of shape (messages + joins,).
    """
    if engine is None:
        return simulate_flows(flat, machine)
    start, end = engine.flows(*_messages(flat), *_resources(machine), *classes(flat))
    return start, end


def order(pieces: Pieces) -> MessageOrder:
    """Return what waits for what (see hazards.hazards)."""
    step = pieces.step[pieces.message]
    n = len(pieces.src)
    if engine is None:
        return hazards(pieces.message, step, pieces.reads, pieces.writes, n).order(n)
    import numpy as np

    columns = (pieces.message.astype(np.int32), step.astype(np.int32), pieces.reads, pieces.writes)
    return MessageOrder(*engine.order(*map(np.ascontiguousarray, columns), n))


def _messages(flat: MessageGraph) -> tuple[np.ndarray, ...]:
    import numpy as np

    kinds = (np.int64, np.int32, np.int64, np.int32, np.int32, np.int64, np.int64)
    columns = (flat.hop_starts, flat.hops, flat.next_starts, flat.nexts, flat.waits, flat.size_bytes, flat.delay)
    return tuple(np.ascontiguousarray(column, kind) for column, kind in zip(columns, kinds, strict=True))


def _forks(flat: MessageGraph) -> tuple[np.ndarray, ...]:
    import numpy as np

    if flat.branches is None:
        return (np.zeros(0, np.int32),) * 3
    return flat.branches.parent, flat.branches.hop, flat.branches.child


def _resources(machine: Machine) -> tuple[object, ...]:
    import numpy as np

    changes = _table(machine.changes, np.float64)
    delays = _table(machine.delays, np.int64)
    flags = machine.whole.view(np.uint8), machine.holds.view(np.uint8)
    return machine.ps_per_byte, machine.latency, *flags, *changes, *delays


def _table(rows: Sequence[tuple[int, int, float]], kind: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import numpy as np

    resource, time, value = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(resource, np.int64), np.array(time, np.int64), np.array(value, kind)
