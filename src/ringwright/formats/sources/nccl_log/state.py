"""What a log has said so far: handles, facts still waiting for their communicator, errors, launch arguments.

A *handle* is one process's end of a communicator: (host, pid, pointer, nranks), and an epoch because pointers are reused.
Lines about rings, trees and connections name no communicator; they belong to the one that the same thread is setting up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.nccl_log.dialect import Version
from ringwright.formats.sources.nccl_log.ledger import Ledger
from ringwright.formats.sources.nccl_log.switch_lines import AddingLines

MAX_ERRORS = 20_000
MAX_FACTS = 4_000_000

Thread = tuple[str, int, int]


@dataclass
class Handle:
    """One rank's end of a communicator. ``rank`` is the rank in the communicator, None when no line said it."""

    index: int
    host: str
    pid: int
    pointer: int
    nranks: int
    rank: int | None = None
    device: int = -1
    nvml: int = -1
    bus_id: str | None = None
    comm_id: str | None = None
    parent: int | None = None
    color: int | None = None
    call: str | None = None
    nnodes: int | None = None
    local_ranks: int | None = None
    global_rank: int | None = None
    started: bool = False
    completed: bool = False
    since: tuple[str, int] = ("", 0)  # file and line of the first word about it


@dataclass
class Fact:
    """A line about the communicator under construction: ring, trees, connection or channels."""

    kind: str
    thread: Thread
    data: Any
    handle: int | None = None
    among: tuple[int, ...] = ()  # the communicators that the thread was setting up at that time


@dataclass
class ErrorLine:
    """A warning, an error or an event, in the order of the input."""

    kind: str  # completion, async, warning, watchdog, progress, chain, killed
    host: str
    pid: int
    device: int
    text: str
    file: str
    line: int
    rank: int | None = None
    status: int | None = None
    peer: str | None = None
    time_s: float | None = None
    data: dict[str, Any] = field(default_factory=dict)


class LogState:
    """Everything but the collective records, which stream past to their own sink."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.versions: Counter[str] = Counter()
        self.rccl = False
        self.lines_of: Counter[tuple[str, int]] = Counter()
        self.process_rank: dict[tuple[str, int], int] = {}
        self.device_of: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
        self.handles: list[Handle] = []
        self.by_pointer: dict[tuple[str, int, int, int], list[int]] = {}
        self.open_facts: dict[Thread, list[Fact]] = defaultdict(list)
        self.building: dict[Thread, list[int]] = defaultdict(list)
        self.facts: list[Fact] = []
        self.tuning: Counter[tuple[str, int, str, str, int]] = Counter()
        self.errors: list[ErrorLine] = []
        self.errors_dropped = 0
        self.nics: dict[tuple[str, int], str] = {}
        self.network: Counter[str] = Counter()
        self.network_lost: Counter[str] = Counter()  # what NCCL says of a plug-in or of cards that it could not use
        self.init_time = (0.0, "")  # s of the longest initialisation that NCCL timed, and its parts
        self.platform: Counter[str] = Counter()  # of instances, as the vendor's plug-in names it
        self.environment: dict[str, Counter[str]] = defaultdict(Counter)
        self.launch: dict[str, tuple[int, str]] = {}  # world, tp, pp, dp, ep, cp -> value and place
        self.layout: list[tuple[int, ...]] = []
        self.iterations: list[tuple[int, float | None]] = []
        self.ras: dict[str, Any] = {}
        self.calls: Counter[str] = Counter()
        self.adding = AddingLines()
        self.tracebacks: dict[int | None, ErrorLine] = {}  # by rank, those whose exception has not come yet
        self.last_error: tuple[str, int] | None = None  # where "Last error:" stands, whose words come next
        self.is_root_next = False  # what torchrun tells next is the failure that it saw first
        self.losses: list[str] = []

    def copy(self) -> LogState:
        """Return a state that can be used up: what identities and wirings change of it is its own, the rest is shared."""
        twin = copy(self)
        twin.lines_of, twin.losses = Counter(self.lines_of), [*self.losses]
        twin.handles = [copy(handle) for handle in self.handles]
        twin.errors = [copy(error) for error in self.errors]
        # By its fields: ten times as fast as a copy, and a large job has millions.
        twin.facts = [Fact(each.kind, each.thread, each.data, each.handle, each.among) for each in self.facts]
        return twin

    @property
    def version(self) -> Version | None:
        """The release that most processes print; None when no line says it."""
        from ringwright.formats.sources.nccl_log.dialect import parse_version

        return parse_version(self.versions.most_common(1)[0][0]) if self.versions else None

    def handle(self, host: str, pid: int, device: int, pointer: int, nranks: int, since: tuple[str, int]) -> Handle:
        """Return the handle of a pointer that a collective names, made when it is new."""
        key = (host, pid, pointer, nranks)
        epochs = self.by_pointer.get(key)
        if epochs:
            return self.handles[epochs[-1]]
        return self._new_handle(key, device, since)

    def _new_handle(self, key: tuple[str, int, int, int], device: int, since: tuple[str, int]) -> Handle:
        host, pid, pointer, nranks = key
        made = Handle(len(self.handles), host, pid, pointer, nranks, device=device, since=since)
        self.handles.append(made)
        self.by_pointer.setdefault(key, []).append(made.index)
        return made

    def initialise(self, thread: Thread, device: int, fields: dict[str, Any], since: tuple[str, int]) -> Handle:
        """Return the handle of an init line; a pointer seen before with another identity starts a new epoch."""
        key = (thread[0], thread[1], fields["pointer"], fields["nranks"])
        epochs = self.by_pointer.get(key)
        known = self.handles[epochs[-1]] if epochs else None
        if known is None or self._is_another(known, fields):
            known = self._new_handle(key, device, since)
        return known

    @staticmethod
    def _is_another(known: Handle, fields: dict[str, Any]) -> bool:
        if known.rank is not None and known.rank != fields["rank"]:
            return True
        if known.comm_id and fields.get("comm_id"):
            return bool(known.comm_id != fields["comm_id"])
        return bool(known.completed and fields["phase"] in ("START", "COMPLETE") and not fields.get("comm_id"))

    def fact(self, kind: str, thread: Thread, data: Any) -> None:
        """Keep a fact for the communicator that ``thread`` is setting up, or until one turns up."""
        if len(self.facts) >= MAX_FACTS:
            return
        building = self.building.get(thread, ())
        fact = Fact(kind, thread, data, building[0] if len(building) == 1 else None, tuple(building))
        self.facts.append(fact)
        if not building:
            self.open_facts[thread].append(fact)

    def begin(self, thread: Thread, handle: int) -> None:
        """A thread starts setting up a communicator: older loose facts are not part of it."""
        self.open_facts.pop(thread, None)
        self.building[thread].append(handle)

    def finish(self, thread: Thread, handle: int) -> None:
        """A communicator is complete: the loose facts of its thread were about it."""
        for fact in self.open_facts.pop(thread, []):
            fact.handle = handle
        if handle in self.building.get(thread, ()):
            self.building[thread].remove(handle)

    def error(self, error: ErrorLine) -> None:
        """Keep an error, up to a bound; more are counted."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(error)
        else:
            self.errors_dropped += 1
