"""Ranks that send each other messages over any wire: large ones go in pieces, so that adding one overlaps the next's arrival.

A wire offers sessions, and a session prepares requests that can be started again and again:

    session = wire.session()
    request = session.send(peer, turn, piece, buffer)      # uint8, contiguous; turn counts the messages between the two
    request = session.receive(peer, turn, piece, buffer)
    request.start(); request.wait()
    session.finish()                                       # after each run of all requests

Both ends cut a message alike: run by run where runs are long, each into pieces; into one packed piece where they are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ringwright.execute.arena import Action, local_moves, nothing, together
from ringwright.execute.plan import Do

if TYPE_CHECKING:
    from ringwright.execute.arena import Arena
    from ringwright.execute.plan import Extent, Message, NodePlan

PIECE_BYTES = 256 * 1024  # fits the cache beside its target
SHORT_RUN_BYTES = 4096  # below this mean, copying runs together is cheaper than a message for each
WINDOW = 4  # pieces on their way to one message's scratch


class Request(Protocol):
    """One piece under way, again and again."""

    def start(self) -> None:
        """Begin; returns at once."""

    def wait(self) -> None:
        """Return when the buffer may be used again."""


class Session(Protocol):
    """Requests that belong to one plan."""

    def send(self, peer: int, turn: int, piece: int, buffer: Any) -> Request:
        """Prepare to send ``buffer``."""

    def receive(self, peer: int, turn: int, piece: int, buffer: Any) -> Request:
        """Prepare to receive into ``buffer``."""

    def finish(self) -> None:
        """All requests were started and waited for once more."""

    @property
    def at_once(self) -> bool:
        """Whether all pieces of a step must be posted before any is waited for."""


class Wire(Protocol):
    """What carries messages between nodes."""

    def session(self) -> Session:
        """Return a new session; all nodes open theirs in the same order."""


def packed(runs: Sequence[Extent]) -> bool:
    """Return whether a message goes as one piece, copied together first. A message without bytes carries one."""
    return not runs or (len(runs) > 1 and sum(run.size for run in runs) < SHORT_RUN_BYTES * len(runs))


def cut(run: Extent, piece_bytes: int) -> list[tuple[int, int]]:
    """Return (begin, size) of the pieces of a run."""
    return [(begin, min(piece_bytes, run.size - begin)) for begin in range(0, run.size, piece_bytes)]


class Pushed:
    """A plan made ready to run over a wire; ``code`` is what to call, in order."""

    def __init__(self, plan: NodePlan, arena: Arena, wire: Wire, piece_bytes: int = PIECE_BYTES) -> None:
        self.plan, self.arena, self.piece_bytes = plan, arena, piece_bytes
        self.session = wire.session()
        kept = {which for what, which in plan.order if what == Do.KEEP}
        staged = {which for what, which in plan.order if what == Do.GRAB}
        self._sends = [self._sending(each) for each in plan.sends]
        self._receives = [self._receiving(each, whole=which in staged) for which, each in enumerate(plan.receives)]
        self._local = [local_moves(self.arena, each.runs, kept=which in kept) for which, each in enumerate(plan.local)]
        self.code = [self._action(Do(what), which) for what, which in plan.order]

    def begin(self) -> None:
        """Start another round."""

    def finish(self) -> None:
        """End a round."""
        self.session.finish()
        self.arena.settle()

    def close(self) -> None:
        """Nothing to give back: the wire belongs to who made it."""

    def _action(self, what: Do, which: int) -> Action:
        if what in (Do.KEEP, Do.LOCAL):
            return self._local[which][what is Do.LOCAL]
        if what in (Do.SEND, Do.SENT):
            return self._sends[which][what is Do.SENT]
        return self._receives[which][0 if what is Do.RECV else 2 if what is Do.APPLY else 1]

    def _sending(self, message: Message) -> tuple[Action, Action]:
        """Return (SEND, SENT)."""
        arena, prepare = self.arena, self.session.send
        if packed(message.runs):
            scratch = arena.scratch(message.size)
            request = prepare(message.peer, message.turn, 0, scratch)
            gather = arena.gather(message.runs, scratch, arena.raw, there=False)
            return together([*gather, request.start]), request.wait
        pieces = [
            arena.bytes(run.at + begin, size) for run in message.runs for begin, size in cut(run, self.piece_bytes)
        ]
        requests = [prepare(message.peer, message.turn, number, piece) for number, piece in enumerate(pieces)]
        return together([each.start for each in requests]), together([each.wait for each in requests])

    def _receiving(self, message: Message, *, whole: bool) -> tuple[Action, Action, Action]:
        """Return (RECV, TAKE or GRAB, APPLY)."""
        if packed(message.runs):
            scratch = self.arena.scratch(message.size)
            request = self.session.receive(message.peer, message.turn, 0, scratch)
            puts = together(self.arena.put_runs(message.runs, scratch, there=False) or [nothing])
            return request.start, request.wait if whole else together([request.wait, puts]), puts
        if whole:
            return self._whole(message)
        return self._windowed(message)

    def _whole(self, message: Message) -> tuple[Action, Action, Action]:
        scratch = self.arena.scratch(message.size)
        requests: list[Request] = []
        begin = 0
        for run in message.runs:
            for first, size in cut(run, self.piece_bytes):
                buffer = scratch[begin + first : begin + first + size]
                requests.append(self.session.receive(message.peer, message.turn, len(requests), buffer))
            begin += run.size
        puts = together(self.arena.put_runs(message.runs, scratch, there=False))
        return together([each.start for each in requests]), together([each.wait for each in requests]), puts

    def _windowed(self, message: Message) -> tuple[Action, Action, Action]:
        """Receive in place what nothing else touches; the rest through a few pieces of scratch, taken in turns."""
        requests: list[Request] = []
        puts: list[Action | None] = []
        frees: list[int] = []  # number of a piece whose scratch this one takes over, -1: none
        scratch: list[Any] = []
        longest = min(self.piece_bytes, max(run.size for run in message.runs))
        users: list[int] = []  # of scratch, the pieces so far in order
        window = sum(len(cut(run, self.piece_bytes)) for run in message.runs) if self.session.at_once else WINDOW
        for run in message.runs:
            for begin, size in cut(run, self.piece_bytes):
                number, put, before = len(requests), None, -1
                buffer = self.arena.bytes(run.at + begin, size)
                if run.adds or not run.alone:
                    if len(users) < window:
                        scratch.append(self.arena.scratch(longest))
                    else:
                        before = users[-window]
                    buffer = scratch[len(users) % window][:size]
                    users.append(number)
                    put = self.arena.put(run.at + begin, buffer, adds=run.adds)
                requests.append(self.session.receive(message.peer, message.turn, number, buffer))
                puts.append(put)
                frees.append(before)
        return *_in_turns(requests, puts, frees), nothing


def _in_turns(
    requests: Sequence[Request], puts: Sequence[Action | None], frees: Sequence[int]
) -> tuple[Action, Action]:
    """Return (what starts the pieces that need nobody's scratch, what waits, puts, and starts the others in order)."""
    first = next((number for number, before in enumerate(frees) if before >= 0), len(requests))
    starts = [request.start for request in requests]
    after: list[Action] = []
    begun = first
    for number, request in enumerate(requests):
        after.append(request.wait)
        put = puts[number]
        if put is not None:
            after.append(put)
        while begun < len(requests) and frees[begun] <= number:
            after.append(starts[begun])
            begun += 1
    return together(starts[:first]) if first else nothing, together(after)
