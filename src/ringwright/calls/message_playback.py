"""A run followed message by message, for a picture that plays it: as much of it from its beginning on as a page can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import gather
from ringwright.engines.passages import RunPassages, passages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.calls.detail import Detail
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.engines.result import Run
    from ringwright.model.program import Program

MOST_PASSAGES = 40_000  # of links by messages, on one page
MOST_FOLLOWED = 4  # algorithms of a page


@dataclass(frozen=True)
class FollowedRun:
    """One run, its messages between nodes in the order of their begin, and when they pass links.

    ``messages``: numbers of those that begin before ``until_ps``, int64; what begins later is not followed, ``left`` of them.
    ``piece_message``, ``piece_chunk``: which chunk each piece of a message is, int64 of shape (pieces,), where it is known.
    """

    name: str
    program: Program
    run: Run
    passages: RunPassages
    messages: np.ndarray
    until_ps: int
    left: int
    piece_message: np.ndarray
    piece_chunk: np.ndarray


def all_followed(question: SimulationSpec, details: Sequence[Detail]) -> list[FollowedRun | tuple[str, str]]:
    """Return the runs of a page message by message, or the name of an algorithm and why it is not followed."""
    told: list[FollowedRun | tuple[str, str]] = []
    for number, detail in enumerate(details):
        if number >= MOST_FOLLOWED:
            told.append((detail.name, f"a page plays {MOST_FOLLOWED} algorithms"))
            continue
        one = followed(question, detail, MOST_PASSAGES // min(len(details), MOST_FOLLOWED))
        told.append((detail.name, one) if isinstance(one, str) else one)
    return told


def followed(question: SimulationSpec, detail: Detail, most: int = MOST_PASSAGES) -> FollowedRun | str:
    """Return the run of one algorithm message by message, or why it is not followed."""
    from ringwright.calls.answers import Answers
    from ringwright.calls.detail import MOST_WHOLE, count_messages

    if question.beside:
        return "the messages of the job beside it are not followed"
    if count_messages(detail.program) > MOST_WHOLE:
        return f"it has more than {MOST_WHOLE:,} messages"
    run = detail.run
    if run.folded:
        machine = Answers(question, [detail.program.collective.size_bytes]).shown_on(detail.program)
        run = question.run(detail.program, machine, folded=False)
    return follow(detail.name, detail.program, run, most)


def follow(name: str, program: Program, run: Run, most: int = MOST_PASSAGES) -> FollowedRun | str:
    """Return a run message by message, up to ``most`` passages of links, or why it is not followed."""
    flat = run.flat
    if not program.n_steps:
        return "nothing moves between ranks"
    if flat is None or run.machine is None:
        return f"the {run.engine} engine follows no single message"
    if run.folded:
        return "one of its messages stands for several"
    between = np.flatnonzero(flat.src != flat.dst)
    order = between[np.argsort(run.start_ps[between], kind="stable")]
    if not len(order):
        return "nothing moves between ranks"
    starts = run.start_ps[order]
    passed = np.cumsum(np.diff(flat.hop_starts)[order] + 1)
    until = run.time_ps + 1
    if passed[-1] > most:
        until = int(starts[np.searchsorted(passed, most, side="right")])
        order = order[starts < until]
        if not len(order):
            return f"{int((starts == until).sum()):,} of its messages begin at once, more than a page can hold"
    pieces = _chunks(program, flat.n_messages)
    return FollowedRun(
        name, program, run, passages(program, run, until), order, until, len(between) - len(order), *pieces
    )


def _chunks(program: Program, messages: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the message and the chunk of each piece; none where messages are not the program's own, or slots hold any chunk."""
    none = np.zeros(0, np.int64)
    layout = program.layout
    pieces = gather(program)
    if len(pieces.src) != messages or layout.before is not None or not layout.n_chunks:
        return none, none
    slot = pieces.reads % layout.slots
    return pieces.message, slot % layout.n_chunks if layout.template is None else layout.template[slot]
