"""Whom the events of a simulated row stand for: each rank by itself, or, of very many, a class of ranks that are alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringwright.engines.job.groups import OperationGroups

if TYPE_CHECKING:
    from ringwright.engines.job.step import Instances
    from ringwright.jobs.pricing.senders import Senders
    from ringwright.model.rewrites import Operation

MOST_APART = 400_000  # events of a Trace, beyond which ranks that are alike stay together
Group = tuple[str, tuple[int, ...]]  # its role and its ranks, in order


class EventPart(NamedTuple):
    """Whom one event of each instance of a row stands for. ``of``: the class of ranks; ``rank`` is None of several.

    ``group`` is that of an operation, ``peer`` the place in it of who receives, ``receiver`` that rank, of another class.
    """

    of: int
    rank: int | None
    rank_class: str
    multiplicity: int
    records: int
    group: Group | None = None
    peer: int | None = None
    receiver: int | None = None


@dataclass(frozen=True)
class Whose:
    """The parts of each row of a run."""

    senders: Senders

    @cached_property
    def is_apart(self) -> bool:
        """Whether each rank has events of its own."""
        run = self.senders.run
        counts = run.laid.rank_classes.counts
        events = (row.count * sum(counts[each] for each in dict.fromkeys(row.rank_classes)) for row in run.laid.rows)
        return all(count == 1 for count in counts) or sum(events) * len(self.senders.steps()) <= MOST_APART

    def parts(self, row: Instances) -> list[EventPart]:
        """Return whom a row stands for."""
        if row.what == "task":
            return self._computing(row)
        operation = self.senders.operations[row.name]
        return self._apart(row, operation) if self.is_apart else self._folded(row, operation)

    def _computing(self, row: Instances) -> list[EventPart]:
        classes = self.senders.run.laid.rank_classes
        (of,) = dict.fromkeys(row.rank_classes)
        if self.is_apart:
            name = classes.of[of]
            return [EventPart(of, rank, name, 1, 1) for rank in np.flatnonzero(classes.class_of == of).tolist()]
        count = classes.counts[of]
        return [EventPart(of, classes.ranks[of] if count == 1 else None, self.senders.names[of], count, count)]

    def _apart(self, row: Instances, operation: Operation) -> list[EventPart]:
        """Return the ranks of all groups that a row stands for; of a send-recv those that send."""
        classes = self.senders.run.laid.rank_classes
        made = []
        for ranks in self._every(operation).get(row.rank_classes, ()):
            is_pair = operation.op == "send-recv"
            members = self.senders.scheduled.mesh.group(operation.axes, ranks[0]) if is_pair else ranks
            peer = members.index(ranks[1]) if is_pair and ranks[1] in members else None
            is_away = is_pair and classes.class_of[ranks[0]] != classes.class_of[ranks[1]]
            for rank in ranks[:1] if is_pair else ranks:
                of = int(classes.class_of[rank])
                whose = (1, 1, (row.role, members), peer, ranks[1] if is_away else None)
                made.append(EventPart(of, rank, classes.of[of], *whose))
        return made

    def _every(self, operation: Operation) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
        key = operation.name
        if key not in self._known:
            self._known[key] = self._groups.every(operation)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[str, dict[tuple[int, ...], list[tuple[int, ...]]]]:
        return {}

    @cached_property
    def _groups(self) -> OperationGroups:
        return OperationGroups(self.senders.scheduled, self.senders.run.laid.rank_classes)

    def _folded(self, row: Instances, operation: Operation) -> list[EventPart]:
        """Return one part for each class that sends: it stands for as many groups, or pairs, as there are."""
        classes, mesh = self.senders.run.laid.rank_classes, self.senders.scheduled.mesh
        taking, sending = list(dict.fromkeys(row.rank_classes)), self.senders.sending(row)
        ranks = sum(classes.counts[each] for each in taking)
        size = len(row.rank_classes) if operation.payloads[0].joint else mesh.extent(operation.axes)
        groups = classes.counts[row.rank_classes[0]] if operation.op == "send-recv" else max(1, ranks // size)
        group = (row.role, self.senders.members(row))
        made = []
        for of in sending:
            count = classes.counts[of]
            rank = classes.ranks[of] if count == 1 else None
            records = ranks if len(sending) == 1 else count
            made.append(EventPart(of, rank, self.senders.names[of], groups, records, group))
        return made
