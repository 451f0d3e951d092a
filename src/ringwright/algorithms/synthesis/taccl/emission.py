"""From a timetable to a program: messages as moves, in waves that keep the order on every link, with the path that ends last."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.link_order import LinkOrder
from ringwright.algorithms.synthesis.taccl.ordering import JoinedSends
from ringwright.model.program import Cost, Op, Program, Step, Term, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.demands import Demands
    from ringwright.algorithms.synthesis.taccl.ordering import ArcTimes, Send, Timetable
    from ringwright.algorithms.synthesis.taccl.search import Attempt


@dataclass(frozen=True)
class _Laid:
    """A message in the program: its step, what it waits for, and who was before it on its resources (numbers of messages)."""

    message: JoinedSends
    wave: int
    data: tuple[int, ...]
    earlier: tuple[int, ...]


def program(name: str, result: Attempt, knobs: dict[str, object]) -> Program:
    """Return the program of a timetable; where links are to be served in another order than readiness, it is declared."""
    demand, made, network, table = result.demand, result.sends, result.network, result.table
    laid = _laid(made, network, table)
    order = sorted(range(len(laid)), key=lambda at: (laid[at].wave, at))
    steps = _steps(made, network, [laid[at] for at in order])
    sent = float(sum(send.size_bytes for send in made))
    plain = Program(
        name,
        demand.collective,
        demand.layout,
        lambda: steps,
        len(steps),
        Cost(_path(made, network, laid), sent, _added(made, network), is_even=_is_even(demand), hides=True),
        knobs=knobs,
    )
    number = {at: rank for rank, at in enumerate(order)}
    also = tuple((number[before], number[after]) for before, after in _inversions(laid))
    return dataclasses.replace(plain, schedule=LinkOrder(plain, also)) if also else plain


def _laid(made: Sequence[Send], network: ArcTimes, table: Timetable) -> list[_Laid]:
    carrier: dict[int, int] = {}  # of each send, its message
    last: dict[int, int] = {}  # of each resource, the message before
    wrote: dict[tuple[int, int], int] = {}
    laid: list[_Laid] = []
    for at, message in enumerate(table.messages):
        arc = network.arcs[message.arc]
        data = {carrier[before] for send in message.sends for before in made[send].after}
        for send in message.sends:
            key = (arc.dst, made[send].chunk)
            data |= {wrote[key]} if key in wrote else set()
            wrote[key] = at
            carrier[send] = at
        earlier = {last[hop.resource] for hop in arc.hops if hop.resource in last}
        last |= dict.fromkeys((hop.resource for hop in arc.hops), at)
        wave = 1 + max((laid[each].wave for each in data | earlier), default=-1)
        laid.append(_Laid(message, wave, tuple(sorted(data)), tuple(sorted(earlier))))
    return laid


def _steps(made: Sequence[Send], network: ArcTimes, rows: Sequence[_Laid]) -> list[Step]:
    waves: dict[int, list[tuple[int, int, int, bool]]] = {}
    for row in rows:
        arc = network.arcs[row.message.arc]
        moves = [(arc.src, arc.dst, made[send].chunk, made[send].adds) for send in sorted(row.message.sends)]
        waves.setdefault(row.wave, []).extend(moves)
    steps = []
    for moves in waves.values():
        blocks: list[list[tuple[int, int, int, bool]]] = []
        for move in moves:
            if not blocks or blocks[-1][0][3] != move[3]:
                blocks.append([])
            blocks[-1].append(move)
        steps.append(
            Step(
                tuple(
                    explicit(Op.REDUCE if block[0][3] else Op.SEND, *([move[i] for move in block] for i in range(3)))
                    for block in blocks
                )
            )
        )
    return steps


def _inversions(laid: Sequence[_Laid]) -> list[tuple[int, int]]:
    """Return (message, message that must wait for it) where one would pass an earlier one on a link, ready before it."""
    ready: list[tuple[int, int]] = []  # of each message: when all it waits for is there, and the last of it
    also = []
    for at, row in enumerate(laid):
        now = max(((laid[each].message.end_ps, each) for each in row.data), default=(0, -1))
        held = max((ready[each] for each in row.earlier), default=(0, -1))
        if held[0] > now[0]:
            also.append((held[1], at))
            now = held
        ready.append(now)
    return also


def _path(made: Sequence[Send], network: ArcTimes, laid: Sequence[_Laid]) -> tuple[Term, ...]:
    """Return messages and bytes of the chain that ends last, by the class of the links."""
    total: dict[str, tuple[int, int]] = {}
    at = max(range(len(laid)), key=lambda each: laid[each].message.end_ps, default=-1)
    while at >= 0:
        row = laid[at]
        arc = network.arcs[row.message.arc]
        messages, size = total.get(arc.level, (0, 0))
        total[arc.level] = messages + 1, size + sum(made[send].size_bytes for send in row.message.sends)
        # What held it back: the data that came last, or the message that left its links last.
        at = max(
            (*row.data, *row.earlier),
            key=lambda each: (min(laid[each].message.end_ps, row.message.start_ps), each),
            default=-1,
        )
    return tuple(Term(messages, float(size), level) for level, (messages, size) in total.items())


def _added(made: Sequence[Send], network: ArcTimes) -> float:
    """Return the bytes that the place with most of it adds up."""
    added: dict[int, int] = {}
    for send in made:
        if send.adds:
            dst = network.arcs[send.arc].dst
            added[dst] = added.get(dst, 0) + send.size_bytes
    return float(max(added.values(), default=0))


def _is_even(demand: Demands) -> bool:
    return len({chunk.size_bytes for chunk in demand.chunks}) < 2
