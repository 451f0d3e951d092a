"""A Program of declared thread blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.program import ADDING, Cost, Program, Term
from ringwright.streams import Stream
from ringwright.threadblocks.timing import longest_path

if TYPE_CHECKING:
    from ringwright.threadblocks.buffers import Arrangement
    from ringwright.threadblocks.schedule import Schedule


def declared(
    name: str,
    arrangement: Arrangement,
    schedule: Schedule,
    *,
    protocol: str = "",
    knobs: Mapping[str, object] | None = None,
) -> Program:
    """Return the program that runs these thread blocks; what cannot run is left out of its steps and found by ``validity``.

    Its steps are the waves in which instructions become able to run, its cost the longest chain of the declared order.
    """
    import numpy as np

    moves = schedule.moves
    layout = dataclasses.replace(arrangement.layout, n_slots=max(moves.slots, arrangement.layout.n_chunks))
    chunk = int(layout.chunk_bytes[0]) if len(layout.chunk_bytes) else 0
    sizes = moves.span * chunk
    messages, path = longest_path(schedule.order, moves, schedule.p + 1, sizes)
    sent = int(sizes[moves.src != moves.dst].sum())
    reduced = np.zeros(schedule.p + 1, np.int64)
    adding = np.isin(moves.op, [int(op) for op in ADDING])
    np.add.at(reduced, moves.dst[adding], sizes[adding])
    return Program(
        name,
        arrangement.collective,
        layout,
        moves.steps,
        moves.n_steps,
        Cost((Term(messages, path),), sent, float(reduced.max(initial=0))),
        aggregators=(schedule.p,) if schedule.groups else (),
        streams=(Stream(schedule.p),) if schedule.groups else (),
        schedule=schedule,
        protocol=protocol,
        channels=int(schedule.blocks.channel.max(initial=0)) + 1,
        knobs=dict(knobs or {}),
    )
