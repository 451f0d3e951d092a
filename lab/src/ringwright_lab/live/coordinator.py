"""What rank 0 knows of all ranks: who has which operation, whether all issue in one order, and who keeps the others waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright_lab.live.control_channel import BEGIN, FAIL, GO, OPENED, SETTLED, ControlMessage

if TYPE_CHECKING:
    from ringwright_lab.live.choose import Chooser, Waiting
    from ringwright_lab.live.plan import LivePlan

Tell = Callable[[ControlMessage], None]  # to every rank, rank 0 too


class Coordinator:
    """Bookkeeping only: its caller holds the lock, and ``tell`` sends."""

    def __init__(self, world: int, tell: Tell) -> None:
        self._world, self._tell = world, tell
        self._plan: LivePlan
        self.chooser: Chooser | None = None
        self.failure = ""
        self._left: set[int] = set()
        self._have: dict[tuple[int, int], set[int]] = {}
        self._complete: set[tuple[int, int]] = set()
        self._last: dict[int, tuple[int, int]] = {}
        self._counts: dict[tuple[int, int], int] = defaultdict(int)  # (rank, step) -> units announced
        self._ended: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._hashes: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._orders: dict[int, dict[int, bytes]] = defaultdict(dict)

    def adopt(self, plan: LivePlan, chooser: Chooser | None) -> None:
        """Take a plan; with a chooser rank 0 says what goes next."""
        self._plan, self.chooser = plan, chooser
        self._last.clear()  # units of the plan before

    def have(self, rank: int, step: int, unit: int) -> None:
        """Take in that a rank has a unit ready."""
        self._last[rank] = (step, unit)
        self._counts[rank, step] += 1
        ranks = self._have.setdefault((step, unit), set())
        is_first = not ranks
        ranks.add(rank)
        if self._left:
            self.gone(min(self._left))
        if len(ranks) == self._world:
            del self._have[step, unit]
            self._complete.add((step, unit))
            if self.chooser is not None:
                self.chooser.ready(step, self._plan.units[unit])
                self.go(queued=False)
        if is_first and self._plan.units[unit].operation in self._plan.gathers:
            self._tell(ControlMessage(OPENED, step, unit))

    def go(self, *, queued: bool) -> None:
        """Start what may start; ``queued``: the link has just become free and these were waiting for it."""
        taken: Waiting | None
        while self.chooser is not None and (taken := self.chooser.take()) is not None:
            self._tell(ControlMessage(GO, taken.step, taken.operation, taken.piece, int(queued)))

    def ended(self, rank: int, step: int, used: bytes) -> None:
        """Take in which parameters a rank has used; tell all what anybody has, once every rank has ended its backward."""
        self._ended[step][rank] = used
        if len(self._ended[step]) == self._world:
            parts = self._ended.pop(step).values()
            anybody = bytes(max(column) for column in zip(*parts, strict=True))
            self._tell(ControlMessage(SETTLED, step, body=anybody))
            for key in [key for key in self._complete if key[0] < step - 1]:
                self._complete.discard(key)
            for pair in [pair for pair in self._counts if pair[1] < step - 1]:
                del self._counts[pair]

    def hashed(self, rank: int, number: int, digest: bytes) -> None:
        """Compare what each rank had issued by its ``number``-th piece."""
        self._hashes[number][rank] = digest
        hashes = self._hashes[number]
        if len(hashes) == self._world:
            del self._hashes[number]
            self._same(hashes, f"by piece {number}, the ranks have issued different operations")

    def ordered(self, rank: int, step: int, digest: bytes) -> None:
        """Compare the orders in which ranks are about to issue a step; let them begin where all are equal."""
        self._orders[step][rank] = digest
        orders = self._orders[step]
        if len(orders) == self._world:
            del self._orders[step]
            if self._same(orders, f"the ranks would issue the operations of step {step} in different orders"):
                self._tell(ControlMessage(BEGIN, step))

    def _same(self, hashes: dict[int, bytes], what: str) -> bool:
        odd = [rank for rank in sorted(hashes) if hashes[rank] != hashes[0]]
        if odd:
            last = ", ".join(f"rank {rank} last announced {self._said(rank)}" for rank in [0, *odd])
            ranks = ", ".join(map(str, odd))
            self.fail(f"{what}: rank {ranks} differs from rank 0", last, "give all ranks one model, policy and seed")
        return not odd

    def gone(self, rank: int, why: str = "it has closed its schedule") -> None:
        """Take in that a rank will announce nothing more; fail if anything waits for it."""
        self._left.add(rank)
        waiting = [key for key, ranks in self._have.items() if rank not in ranks]
        if waiting or why != "it has closed its schedule":
            first = min(waiting, default=None)
            lacks = f", without {self._name(first[1])} of step {first[0]}" if first else ""
            self.fail(
                f"rank {rank} has left{lacks}: {why}",
                f"rank {rank} last announced {self._said(rank)}",
                "look for the error of that rank above",
            )

    def asked(self, rank: int, step: int, unit: int, waited_s: float, head: tuple[int, int] | None) -> None:
        """Say who keeps a rank waiting; ``head``: (step, unit) that a fixed order stands at, on rank 0."""
        what = f"rank {rank} has waited {waited_s:g} s for "
        settling = unit >= len(self._plan.units)
        what += f"the end of backward of step {step}" if settling else f"{self._name(unit)} of step {step}"
        if settling:
            lacking = [each for each in range(self._world) if each not in self._ended.get(step, {})]
        else:
            lacking = self._lacking(step, unit)
            if not lacking and head is not None and (lacking := self._lacking(*head)):
                what += f", which comes after {self._name(head[1])} of step {head[0]}"
                step, unit = head
        if not lacking:
            where = "every rank has announced it; a collective that was started does not end"
            self.fail(what, where, "look at the network between the ranks; a longer timeout_s if it was only slow")
            return
        thing = "has not ended that backward pass" if settling else f"lacks {self._name(unit)}"
        where = "; ".join(
            f"rank {each} {thing}: it last announced {self._said(each)}, {self._counts[each, step]} of "
            f"{len(self._plan.units)} in step {step}"
            for each in lacking
        )
        self.fail(
            what, where, "every rank runs backward() and step() equally often; a longer timeout_s if it was only slow"
        )

    def _lacking(self, step: int, unit: int) -> list[int]:
        if (step, unit) in self._complete:
            return []
        return sorted(set(range(self._world)) - self._have.get((step, unit), set()))

    def _name(self, unit: int) -> str:
        sent = self._plan.units[unit]
        piece = f", piece {sent.piece}" if sent.piece >= 0 else ""
        return f"operation '{self._plan.operations[sent.operation].name}'{piece}"

    def _said(self, rank: int) -> str:
        if rank not in self._last:
            return "nothing"
        step, unit = self._last[rank]
        return f"{self._name(unit)} of step {step}"

    def fail(self, what: str, where: str, remedy: str) -> None:
        """Tell every rank, once."""
        if not self.failure:
            self.failure = what
            self._tell(ControlMessage(FAIL, body=f"{what}\x00{where}\x00{remedy}".encode()))
