"""Kernels, records and labels of one file to operations: one for each thing asked of the network on this rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.kineto.catalogue import UNKNOWN, Catalogue, Kernel
from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.facts import CallFacts, facts
from ringwright.formats.sources.kineto.labels import HOST_RUN, HostCall, host_calls
from ringwright.formats.sources.kineto.names import operation
from ringwright.formats.sources.kineto.records import CommArgs
from ringwright.formats.sources.kineto.spans import NEST, Spans

if TYPE_CHECKING:
    import numpy as np

# operations that a library may well carry out by sends and receives
_BY_SENDS = ("all-to-all", "gather", "scatter", "send", "recv", "send-recv")
_BACKENDS = ("nccl:", "xccl:", "rccl:", "hccl:")


@dataclass
class KinetoOperation:
    """One operation: ``kernels`` and ``record`` are numbers in the tables of the file; times in microseconds."""

    op: str
    library: str
    facts: CallFacts
    kernel: Kernel | None = None
    kernels: list[int] = field(default_factory=list)
    line: int = 0
    enqueue: float | None = None
    start: float | None = None
    duration: float | None = None
    thread: int | None = None
    ground: str = "read"
    label: str = ""
    replay: int | None = None  # which launch of a graph, counted from 0, brought the kernel


@dataclass
class Linked:
    """All of one file joined: ``call`` is per kernel the number of its launch, -1 without; ``classes`` per kernel name."""

    operations: list[KinetoOperation]
    classes: list[Kernel]
    communicates: np.ndarray
    call: np.ndarray
    nameless: np.ndarray  # which kernels a communication call launched that launched none of the catalogue
    nameless_records: int = 0
    kernels_without_facts: list[int] = field(default_factory=list)
    contradictions: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


def link(rank_file: RankFile, catalogue: Catalogue, *, is_amd: bool = False) -> Linked:
    """Join a file's kernels with the calls that launched them and the records that describe them."""
    import numpy as np

    classes = [catalogue.classify(name) for name in rank_file.names]
    kernels = rank_file.kernels
    names = np.frombuffer(kernels.name, np.int32)
    copies = np.frombuffer(kernels.is_copy, np.int8).astype(bool)
    communicates = np.array([kind.communicates for kind in classes], bool)[names] & ~copies if len(kernels) else copies
    for number, args in rank_file.meta.items():
        if not copies[number] and classes[names[number]].library == UNKNOWN and operation(args.collective):
            communicates[number] = True
    linked = Linked([], classes, communicates, _calls(rank_file), np.zeros(len(kernels), bool))
    _Joiner(rank_file, linked, "rccl" if is_amd else None).join()
    return linked


def _calls(rank_file: RankFile) -> np.ndarray:
    """Return per kernel the number of the call that launched it, by correlation; -1 without one."""
    import numpy as np

    ids = np.frombuffer(rank_file.calls.correlation, np.int64)
    wanted = np.frombuffer(rank_file.kernels.correlation, np.int64)
    if not len(ids) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    position = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    hit = order[position]
    return np.where((ids[hit] == wanted) & (wanted >= 0), hit, -1)


class _Joiner:
    """The joining of one file."""

    def __init__(self, rank_file: RankFile, linked: Linked, library: str | None) -> None:
        self.rank_file, self.linked, self.library = rank_file, linked, library
        self.records = Spans(rank_file.records)
        self.host = host_calls(rank_file, self.records)
        self.labels = Spans(rank_file.labels, {number for call in self.host for number in call.labels})
        if self._adopt():
            self.records = Spans(rank_file.records)
        self.facts: dict[int, CallFacts] = {}
        self.by_external: dict[int, int] = {}
        self.is_numbered_apart = False  # whether ids of kernels are those of host operations, as in newer releases
        graphs = [number for number, name in enumerate(rank_file.calls.name) if "GraphLaunch" in rank_file.names[name]]
        self._replays = {call: position for position, call in enumerate(graphs)}
        self._parents = [self._parent(number) for number in range(len(rank_file.records))]

    def _adopt(self) -> bool:
        """Older releases label some collectives without recording them: such a label stands for its record."""
        rank_file, before = self.rank_file, len(self.rank_file.records)
        labels, records = rank_file.labels, rank_file.records
        is_call = [name.startswith(_BACKENDS) and operation(name) is not None for name in rank_file.names]
        for number, name in enumerate(labels.name):
            if is_call[name] and not self.records.around(labels.thread[number], labels.ts[number]):
                for column in ("ts", "dur", "name", "thread", "line"):
                    getattr(records, column).append(getattr(labels, column)[number])
                rank_file.record_args.append(rank_file.label_args.get(number, CommArgs()))
        return len(records) > before

    def join(self) -> None:
        """Fill the operations: those with kernels first, then what was asked for but not seen on the device."""
        owned = self._own()
        taken: set[int] = set()
        for record, numbers in owned.items():
            if record is None:
                for number in numbers:
                    self._of_kernels([number], None)
            else:
                self._of_kernels(numbers, record)
                taken.add(record)
        seen = {key for op in self.linked.operations if (key := _key(op)) is not None}
        for record in range(len(self.rank_file.records)):
            if self._parents[record] is None and record not in taken:
                self._of_record(record, seen)
        for call in self.host:
            self._of_host(call)
        self._nameless(taken)
        self.linked.operations.sort(key=lambda op: (op.enqueue if op.enqueue is not None else op.start or 0.0, op.line))

    def _nameless(self, taken: set[int]) -> None:
        """Note the kernels that calls launched of which no kernel is known: they are hardly computation."""
        import numpy as np

        rank_file, table = self.rank_file, self.rank_file.records
        order = np.argsort(rank_file.calls.ts, kind="stable")
        launches = np.frombuffer(rank_file.calls.ts, float)[order] if len(order) else np.zeros(0)
        threads = np.array(rank_file.calls.thread, np.int32)[order]
        inside = np.zeros(len(order), bool)
        for record in range(len(table)):
            size = self._facts(record).group_size
            if self._parents[record] is None and record not in taken and size != 1:
                first, last = np.searchsorted(launches, [table.ts[record], table.ts[record] + table.dur[record]])
                inside[order[first:last]] |= threads[first:last] == table.thread[record]
        call = self.linked.call
        copies = np.frombuffer(rank_file.kernels.is_copy, np.int8).astype(bool)
        if len(inside):
            self.linked.nameless = (call >= 0) & inside[np.maximum(call, 0)] & ~copies & ~self.linked.communicates

    def _own(self) -> dict[int | None, list[int]]:
        """Return the kernels of each record; None holds those without."""
        import numpy as np

        kernels, calls = self.rank_file.kernels, self.rank_file.calls
        mine = np.flatnonzero(self.linked.communicates).tolist()
        self.is_numbered_apart = any(kernels.external[n] not in (-1, kernels.correlation[n]) for n in mine)
        for number, args in enumerate(self.rank_file.record_args):
            if type(args.external) is int:
                self.by_external[args.external] = number
        owned: dict[int | None, list[int]] = defaultdict(list)
        for number in mine:
            call = int(self.linked.call[number])
            record = None
            if call >= 0 and call not in self._replays:
                around = self.records.around(calls.thread[call], calls.ts[call])
                record = around[0] if around else None
            if record is None and self.is_numbered_apart and call < 0:
                record = self.by_external.get(kernels.external[number])
            owned[None if record is None else self._root(record)].append(number)
        return owned

    def _parent(self, number: int) -> int | None:
        """Return the record around this one that speaks of the same operation: some releases write two."""
        table = self.rank_file.records
        for other in self.records.around(table.thread[number], table.ts[number])[:4]:
            is_around = table.ts[other] + table.dur[other] >= table.ts[number] + table.dur[number]
            if (
                other == number
                or not is_around
                or (table.ts[other], -table.dur[other]) == (table.ts[number], -table.dur[number])
            ):
                continue
            outer, inner = self._facts(other), self._facts(number)
            return other if outer.said is None or inner.said is None or outer.op == inner.op else None
        return None

    def _root(self, number: int) -> int:
        for _ in range(NEST):
            parent = self._parents[number]
            if parent is None:
                break
            number = parent
        return number

    def _facts(self, record: int) -> CallFacts:
        if record not in self.facts:
            self.facts[record] = facts([self.rank_file.record_args[record]])
        return self.facts[record]

    def _children(self, record: int) -> list[int]:
        table = self.rank_file.records
        inside = self.records.within(table.thread[record], table.ts[record], table.ts[record] + table.dur[record])
        return [number for number in inside if number != record and self._root(number) == record]

    def _label(self, record: int) -> tuple[str | None, int | None]:
        """Return the operation that the labels in or around a record name, and the label."""
        table, labels = self.rank_file.records, self.rank_file.labels
        thread, start = table.thread[record], table.ts[record]
        for number in self.labels.within(thread, start, start + table.dur[record]):
            op = operation(self.rank_file.names[labels.name[number]])
            if op is not None:
                return op, number
        for number in self.labels.around(thread, start):
            op = operation(self.rank_file.names[labels.name[number]])
            if op is not None:
                return op, number
        return None, None

    def _elements(self, record: int) -> CommArgs | None:
        """Return what the label in a record says of its tensor, for releases whose record says nothing of sizes."""
        table = self.rank_file.records
        inside = self.labels.within(table.thread[record], table.ts[record], table.ts[record] + table.dur[record])
        said = [self.rank_file.label_args[n] for n in inside if n in self.rank_file.label_args]
        return said[0] if len(said) == 1 else None

    def _facts_of(self, numbers: list[int], record: int | None) -> tuple[CallFacts, str | None, str, int | None]:
        """Return what kernels and their record say, the operation and its ground, and the label around them."""
        said = [self.rank_file.meta.get(number) for number in numbers]
        if record is None:
            about = facts(said)
            return about, about.op, "read", None
        said += [self.rank_file.record_args[n] for n in [record, *self._children(record)]]
        op, (named, label) = facts(said).op, self._label(record)
        about = facts([*said, self._elements(record)])
        return (about, named, "inferred", label) if op is None else (about, op, "read", label)

    def _of_kernels(self, numbers: list[int], record: int | None) -> None:
        rank_file, kernels = self.rank_file, self.rank_file.kernels
        first = min(numbers, key=lambda number: kernels.ts[number])
        kind = self.linked.classes[kernels.name[first]]
        about, op, ground, label = self._facts_of(numbers, record)
        if op is not None and kind.op is not None and _contradict(op, kind.op):
            self.linked.contradictions[op, kind.op] += len(numbers)
        if op is None:
            op, ground = kind.op or "unknown", "read" if kind.op else "assumed"
        if about.is_empty:
            self.linked.kernels_without_facts.append(first)
        call = int(self.linked.call[first])
        end = max(kernels.ts[number] + kernels.dur[number] for number in numbers)
        library = self.library if self.library and kind.library == "nccl" else kind.library
        self.linked.operations.append(
            KinetoOperation(
                op,
                "custom" if library == UNKNOWN else library,
                about,
                kind,
                numbers,
                kernels.line[first],
                rank_file.calls.ts[call] if call >= 0 else None,
                kernels.ts[first],
                kernels.dur[first] if len(numbers) == 1 else end - kernels.ts[first],
                rank_file.calls.thread[call] if call >= 0 else None,
                ground,
                rank_file.names[rank_file.labels.name[label]] if label is not None else "",
                self._replays.get(call),
            )
        )

    def _of_record(self, record: int, seen: set[tuple[object, ...]]) -> None:
        """An operation that was asked for, and whose kernel the trace does not hold."""
        rank_file, table = self.rank_file, self.rank_file.records
        said = [rank_file.record_args[n] for n in [record, *self._children(record)]]
        about = facts([*said, self._elements(record)])
        op, label, ground = about.op, None, "read"
        if about.said is None:
            (op, label), ground = self._label(record), "inferred"
        elif op is not None:
            label = self._label(record)[1]
        if op is None:
            self.linked.nameless_records += 1
            return
        name = rank_file.names[rank_file.labels.name[label]] if label is not None else ""
        made = KinetoOperation(
            op, name.split(":", 1)[0] if name.startswith(HOST_RUN) else "", about, line=table.line[record]
        )
        made.enqueue, made.thread, made.ground, made.label = table.ts[record], table.thread[record], ground, name
        key = _key(made)
        if key is not None and key in seen:
            return  # the second record of an operation that is here already
        if key is not None:
            seen.add(key)
        if label is not None and made.library:
            made.start, made.duration, made.ground = rank_file.labels.ts[label], rank_file.labels.dur[label], "inferred"
        self.linked.operations.append(made)

    def _of_host(self, call: HostCall) -> None:
        """An operation of a library of the host: what was asked says more of it than the work's own label."""
        rank_file, table = self.rank_file, self.rank_file.labels
        first, asked = call.labels[0], call.asked
        name = rank_file.names[table.name[first]]
        about = facts(rank_file.label_args.get(number) for number in (asked, first))
        start = min(table.ts[number] for number in call.labels)
        end = max(table.ts[number] + table.dur[number] for number in call.labels)
        made = KinetoOperation(
            call.op, name.split(":", 1)[0], about, line=table.line[first], ground="inferred", label=name
        )
        made.enqueue, made.thread = table.ts[asked], table.thread[asked]
        made.start, made.duration = start, end - start
        self.linked.operations.append(made)


def _key(op: KinetoOperation) -> tuple[object, ...] | None:
    """Return what two records of one operation have in common, None when the trace numbers no operations."""
    about = op.facts
    if about.sequence is None or about.group_name is None or op.op in ("send", "recv", "send-recv"):
        return None
    return about.group_name, op.op, about.sequence, about.in_count


def _contradict(op: str, other: str) -> bool:
    """Whether a record names another operation than the kernel's; some are made of sends and receives."""
    return op != other and not (other == "send-recv" and op in _BY_SENDS)
