"""What ranks are asked and what they answer, as files in one folder that all of them see.

``job`` holds the question, ``plan-K-N`` what node N does in plan K, ``answer-N`` what node N found, ``status-N`` where it
stood when it gave up. Everything is MessagePack; nothing in it is code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ringwright.execute.plan import NodePlan
from ringwright.execute.switched.terms import SwitchTerms, WorkerPort
from ringwright.model.collective import Collective

T = TypeVar("T")


class AskedCollective(msgspec.Struct, frozen=True):
    """A Collective as data; its group is 0 to p-1, for plans count places."""

    op: str
    p: int
    size_bytes: int
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int = 0
    in_place: bool = False
    counts: Any = None
    commutative: bool = True

    @classmethod
    def of(cls, collective: Collective) -> AskedCollective:
        """Take down a collective."""
        return cls(
            collective.op,
            collective.p,
            collective.size_bytes,
            collective.dtype,
            collective.reduce_op,
            collective.root,
            collective.in_place,
            collective.counts,
            collective.commutative,
        )

    def collective(self) -> Collective:
        """Return the collective."""
        counts = self.counts
        if counts is not None:
            counts = tuple(tuple(each) if isinstance(each, list) else each for each in counts)
        return Collective(
            self.op,
            range(self.p),
            self.size_bytes,
            self.dtype,
            self.reduce_op,
            self.root,
            self.in_place,
            counts,
            self.commutative,
        )


class Contender(msgspec.Struct, frozen=True):
    """One way to do it: ``plan`` on a ``wire`` (memory, sockets, mpi, torch, torch-batched), through a switch, or natively."""

    label: str
    wire: str = ""  # empty: the backend's own collective
    plan: int = -1
    terms: SwitchTerms | None = None  # through a switch that adds


class Contest(msgspec.Struct, frozen=True):
    """A collective and who does it, in turns. ``inner`` runs follow each other between two barriers, ``rounds`` times."""

    asked: AskedCollective
    contenders: list[Contender]
    rounds: int = 0
    inner: int = 1
    warmup: int = 0
    seed: int = 0
    look: bool = True  # whether results are compared with what the seeds say
    reals: bool = False  # random reals instead of small whole numbers
    keep: bool = False  # answer with the results themselves
    record: bool = False  # answer with the times of every message of one run


class RankJob(msgspec.Struct, frozen=True):
    """All that one start of the ranks does. ``addresses``: of each node, for sockets."""

    nodes: int
    addresses: list[str]
    cases: list[Contest]
    backend: str = "processes"  # who starts and knows the ranks: processes, mpi or torch
    timeout_s: float = 60.0  # without any progress
    piece_bytes: int = 0  # 0: the wire's own
    interfaces: list[list[str]] = []  # of each node, whose bytes are counted; empty: none are
    begins: int = -1  # the case before which ranks wait until they are told to go on; -1: none
    switched: list[WorkerPort] = []  # of each rank, where contenders go through a switch
    call: str = ""  # which of MPI's collectives is meant where one of ours is two of them


class Span(msgspec.Struct, array_like=True, frozen=True):
    """A message as one node saw it: seconds of the machine's steady clock."""

    sends: bool
    which: int  # in the plan's sends or receives
    start_s: float
    end_s: float


class NodeResult(msgspec.Struct):
    """What one node says of one contender in one case."""

    case: int
    label: str
    wrong: int = 0  # elements
    first_wrong: tuple[int, int] | None = None  # block, element in it
    times_s: list[tuple[float, float]] = []  # start and end of each round
    results: list[tuple[int, int, bytes]] = []  # block, first byte in it, bytes
    spans: list[Span] = []
    started_s: float = 0.0
    sent_bytes: list[int] = []  # by each of this node's interfaces in all rounds, headers counted; empty: not counted
    declined: str = ""


class Status(msgspec.Struct, frozen=True):
    """Where a node stood when it gave up."""

    node: int
    state: str  # waiting, failed
    case: int = -1
    label: str = ""
    doing: str = ""
    peers: list[int] = []  # whom it waits for
    step: int = -1
    chunk: int = -1
    error: str = ""


def write(path: Path, thing: object) -> None:
    """Write at once: a reader finds all of it or no file."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(msgspec.msgpack.encode(thing))
    draft.rename(path)


def read_struct(path: Path, kind: type[T]) -> T:
    """Read what ``write`` wrote; ValidationError of msgspec where it is something else."""
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)


def plan_path(folder: Path, plan: int, node: int) -> Path:
    """Return where a node's part of a plan lies."""
    return folder / f"plan-{plan}-{node}"


def read_plan(folder: Path, plan: int, node: int) -> NodePlan:
    """Return what a node does in a plan."""
    return read_struct(plan_path(folder, plan, node), NodePlan)
