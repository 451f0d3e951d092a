"""Plans of all nodes run in one process by a scheduler that picks, seeded, which node or message moves next.

It is as unkind as a wire may be: bytes of a message are read at any moment between SEND and SENT, runs that may arrive at any
moment do, all others only once their receiver waits for them. Whatever is read is compared with what was there at SEND, so a
source overwritten too early shows at once. With ``groups`` what a node posts between two waits goes as one group, and no group
begins before the one before it has ended at that node: the way NCCL takes them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ringwright.execute import check, data
from ringwright.execute.arena import Arena
from ringwright.execute.backends import ordinary
from ringwright.execute.job import NodeResult
from ringwright.execute.plan import Do, Extent, Message, NodePlan, plans
from ringwright.model.program import Program

Key = tuple[int, int, int]  # source, target, turn


class Stuck(Exception):  # noqa: N818 - what the oracle finds, not an error of the project
    """No node and no message can move."""


@dataclass
class Transfer:
    """A message under way, as both ends posted it."""

    sent: Message | None = None
    source: Node | None = None
    held: list[np.ndarray] = field(default_factory=list)  # what its runs held at SEND
    due: Message | None = None
    target: Node | None = None
    wanted: bool = False  # its receiver waits for it
    group: tuple[int, int] = (0, 0)  # at the source, at the target
    which: int = 0  # in the target's receives
    come: dict[int, np.ndarray] = field(default_factory=dict)  # run -> bytes

    @property
    def done(self) -> bool:
        return self.sent is not None and self.due is not None and len(self.come) == len(self.sent.runs)


class Node:
    def __init__(self, plan: NodePlan, program: Program, seed: int) -> None:
        self.plan, self.at = plan, 0
        self.arena: Arena = ordinary(plan.arena_bytes, program.collective)
        self.kept: dict[int, list[np.ndarray]] = {}
        self.closed, self.open = 0, False  # groups
        self.posted: list[tuple[int, Transfer]] = []  # group and message, those that have not ended
        self.staged = {which for what, which in plan.order if what == Do.GRAB}
        for part in plan.given:
            size = data.block_bytes(program.collective, part.block)
            whole = data.values(program.collective, plan.node, part.block, size, seed).view(np.uint8)
            self.arena.write(part.at, whole[part.begin : part.begin + part.size])

    @property
    def over(self) -> bool:
        return self.at == len(self.plan.order)

    def read(self, at: int, size: int) -> np.ndarray:
        return np.array(self.arena.bytes(at, size), np.uint8)

    def put(self, runs: Sequence[Extent], parts: Sequence[np.ndarray]) -> None:
        for run, part in zip(runs, parts, strict=True):
            self.arena.put(run.at, part, adds=run.adds)()


class Oracle:
    def __init__(self, program: Program, made: Sequence[NodePlan], *, seed: int, groups: bool = False) -> None:
        self.program, self.seed, self.groups = program, seed, groups
        self.nodes = [Node(plan, program, seed) for plan in made]
        self.transfers: dict[Key, Transfer] = {}
        self.moving: dict[int, Transfer] = {}  # by identity: those posted at both ends, with runs to come
        self.chance = random.Random(seed)

    def run(self) -> list[NodeResult]:
        """Return every node's results; Stuck where nothing can move."""
        while not all(node.over for node in self.nodes):
            moves = [node for node in self.nodes if not node.over and self._ready(node)]
            pieces = [(each, run) for each in self.moving.values() for run in self._can_come(each)]
            if not moves and not pieces:
                raise Stuck(", ".join(self._waits(node) for node in self.nodes if not node.over))
            which = self.chance.randrange(len(moves) + len(pieces))
            if which < len(moves):
                for _ in range(self.chance.randint(1, 4)):
                    self._advance(moves[which])
                    if moves[which].over or not self._ready(moves[which]):
                        break
            else:
                self._move(*pieces[which - len(moves)])
        left = [key for key, each in self.transfers.items() if not each.done]
        assert not left, f"messages of one end only: {left}"
        return [self._found(node) for node in self.nodes]

    def _found(self, node: Node) -> NodeResult:
        results = [(part.block, part.begin, node.read(part.at, part.size).tobytes()) for part in node.plan.wanted]
        return NodeResult(0, "oracle", results=results)

    def _waits(self, node: Node) -> str:
        what, which = node.plan.order[node.at]
        message = (node.plan.sends if what in (Do.SEND, Do.SENT) else node.plan.receives)[which]
        return f"{node.plan.node} {Do(what).name} {message.peer} step {message.step}"

    def _transfer(self, node: Node, what: int, which: int) -> Transfer:
        me = node.plan.node
        if what in (Do.SEND, Do.SENT):
            message = node.plan.sends[which]
            return self.transfers.setdefault((me, message.peer, message.turn), Transfer())
        message = node.plan.receives[which]
        return self.transfers.setdefault((message.peer, me, message.turn), Transfer())

    def _ready(self, node: Node) -> bool:
        what, which = node.plan.order[node.at]
        if what not in (Do.TAKE, Do.GRAB, Do.SENT):
            return True
        if node.open:
            node.open, node.closed = False, node.closed + 1
        each = self._transfer(node, what, which)
        each.wanted |= what != Do.SENT
        return each.done

    def _advance(self, node: Node) -> None:
        what, which = node.plan.order[node.at]
        node.at += 1
        if what in (Do.KEEP, Do.LOCAL):
            self._local(node, Do(what), which)
            return
        each = self._transfer(node, what, which)
        if what == Do.SEND:
            assert each.sent is None, "a turn is used twice"
            each.sent, each.source = node.plan.sends[which], node
            each.held = [node.read(run.at, run.size) for run in each.sent.runs]
            each.group, node.open = (node.closed, each.group[1]), True
            self._post(each, node)
        elif what == Do.RECV:
            assert each.due is None, "a turn is used twice"
            each.due, each.target, each.which = node.plan.receives[which], node, which
            each.group, node.open = (each.group[0], node.closed), True
            self._post(each, node)
        elif what in (Do.TAKE, Do.APPLY):
            assert each.due is not None
            for number, run in enumerate(each.due.runs):
                if self._at_any_moment(run) and what == Do.TAKE:
                    assert np.array_equal(node.read(run.at, run.size), each.come[number]), "overwritten as it arrived"
                else:
                    node.put([run], [each.come[number]])

    def _local(self, node: Node, what: Do, which: int) -> None:
        runs = node.plan.local[which].runs
        if what is Do.KEEP:
            node.kept[which] = [node.read(run.there, run.size) for run in runs]
            return
        for number, run in enumerate(runs):
            part = node.kept[which][number] if which in node.kept else node.read(run.there, run.size)
            node.put([run], [part])
        node.kept.pop(which, None)

    def _post(self, each: Transfer, node: Node) -> None:
        """Both ends must see the same message."""
        node.posted.append((node.closed, each))
        if each.sent is None or each.due is None:
            return
        if not each.done:
            self.moving[id(each)] = each
        ours = [(run.at, run.there, run.size, run.adds) for run in each.sent.runs]
        theirs = [(run.there, run.at, run.size, run.adds) for run in each.due.runs]
        assert ours == theirs
        assert (each.sent.step, each.sent.number) == (each.due.step, each.due.number)

    @staticmethod
    def _at_any_moment(run: Extent) -> bool:
        return run.alone and not run.adds

    def _can_come(self, each: Transfer) -> list[int]:
        assert each.due is not None
        if self.groups and not (self._begun(each.source, each.group[0]) and self._begun(each.target, each.group[1])):
            return []
        return [
            number
            for number, run in enumerate(each.due.runs)
            if number not in each.come and (each.wanted or self.groups or self._at_any_moment(run))
        ]

    def _begun(self, node: Node | None, group: int) -> bool:
        """The group is posted, and all groups before it at this node have ended."""
        assert node is not None
        if group >= node.closed:
            return False
        node.posted = [(number, each) for number, each in node.posted if not each.done]
        return all(number >= group for number, _ in node.posted)

    def _move(self, each: Transfer, number: int) -> None:
        assert each.sent is not None
        assert each.due is not None
        assert each.source is not None
        assert each.target is not None
        run = each.sent.runs[number]
        now = each.source.read(run.at, run.size)
        assert np.array_equal(now, each.held[number]), f"{each.sent} was overwritten before it had left"
        each.come[number] = now
        arrives = each.due.runs[number]
        if each.done:
            del self.moving[id(each)]
        if self._at_any_moment(arrives) and each.which not in each.target.staged:
            each.target.put([arrives], [now])


def verify(program: Program, *, seed: int = 0, groups: bool = False, made: Sequence[NodePlan] | None = None) -> None:
    """Run a program's plans in a random order and compare with the interpreter."""
    found = Oracle(program, made or plans(program), seed=seed, groups=groups).run()
    difference = check.against_interpreter(program, found, seed=seed)
    assert difference is None, f"{program.name} {program.collective}: {difference}"
