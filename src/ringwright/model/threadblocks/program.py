"""A Program of declared thread blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.model.program import ADDING, Cost, Layout, Program, Term
from ringwright.model.streams import Stream
from ringwright.model.threadblocks.timing import longest_path

if TYPE_CHECKING:
    from ringwright.model.threadblocks.buffers import Arrangement
    from ringwright.model.threadblocks.schedule import Schedule


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
    layout = _with_slots(arrangement.layout, moves.slots)
    sizes = np.zeros(len(moves.span), np.int64)
    for span in np.unique(moves.span).tolist():
        of_it = moves.span == span
        sizes[of_it] = layout.message_bytes(moves.chunk[of_it], span)
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
        Cost((Term(messages, path),), sent, float(reduced.max(initial=0)), is_even=layout.template is None),
        aggregators=(schedule.p,) if schedule.groups else (),
        streams=(Stream(schedule.p),) if schedule.groups else (),
        schedule=schedule,
        protocol=protocol,
        channels=int(schedule.blocks.channel.max(initial=0)) + 1,
        knobs=dict(knobs or {}),
    )


def _with_slots(layout: Layout, slots: int) -> Layout:
    """Return the layout with room for what the program needs; where chunks differ, slots behind the buffers fit the largest."""
    import numpy as np

    n_slots = max(slots, layout.n_chunks)
    if layout.template is None:
        return dataclasses.replace(layout, n_slots=n_slots)
    n_slots = max(n_slots, len(layout.template))
    largest = np.full(n_slots - len(layout.template), layout.template[-1])
    return dataclasses.replace(layout, n_slots=n_slots, template=np.concatenate((layout.template, largest)))
