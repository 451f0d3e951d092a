"""Members of a group that did not ask for the same thing at the same sequence: operation, order, size, datatype, splits."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ringwright.analysis.document import Culprit

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

# Which side must be equal on all members: (what the caller hands in, what it gets).
_SIDES = {"all-to-all": (False, False), "gather": (True, False), "scatter": (False, True)}
_MOST_SEQUENCES = 2_000
MOST_LISTED = 16  # ranks or ranges of ranks in a sentence


class _Ask(NamedTuple):
    op: str
    datatype: str | None
    sent: int | None
    received: int | None

    def says(self) -> str:
        parts = [self.op, self.datatype or "", f"in {self.sent} B" if self.sent is not None else ""]
        parts.append(f"out {self.received} B" if self.received is not None else "")
        return " ".join(part for part in parts if part)


def mismatches(trace: Trace) -> list[Culprit]:
    """Return one culprit per group whose members disagree, judged at the first sequence where they do.

    The odd minority is named; without a majority the ranks stay empty and the evidence says "cannot tell". A group that
    agrees, and any trace without sequences, yields nothing.
    """
    import polars as pl

    keys = ["communicator", "sequence"]
    mine = trace.scan("events").filter(
        (pl.col("kind") == "collective")
        & pl.col("rank").is_not_null()
        & pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
        & pl.col("state").is_not_null()
    )
    odd = mine.group_by(keys).agg(
        pl.col("rank").n_unique().alias("ranks"),
        *(pl.col(name).n_unique().alias(name) for name in ("op", "datatype", "sent_bytes", "received_bytes")),
    )
    different = pl.any_horizontal(pl.col(name) > 1 for name in ("op", "datatype", "sent_bytes", "received_bytes"))
    suspects = odd.filter(different & (pl.col("ranks") > 1)).select(keys).sort(keys).collect()
    names = dict(trace.table("communicators").select("communicator", "name").rows())
    sizes = dict(trace.table("communicators").select("communicator", "size").rows())
    culprits = []
    for (communicator,), frame in suspects.group_by("communicator", maintain_order=True):
        wanted = frame["sequence"].to_list()[:_MOST_SEQUENCES]
        rows = mine.filter((pl.col("communicator") == communicator) & (pl.col("sequence") >= wanted[0])).collect()
        group = _Group(rows.to_dicts(), str(names.get(communicator, communicator)), sizes.get(communicator))
        verdict = next((v for sequence in wanted if (v := group.judge(sequence)) is not None), None)
        if verdict is not None:
            culprits.append(verdict)
    return sorted(culprits, key=lambda culprit: -culprit["confidence"])


class _Group:
    """The operations of one group from the first suspect sequence on."""

    def __init__(self, rows: list[dict[str, Any]], name: str, size: int | None) -> None:
        self.name = name
        self.size = size
        self.rows: dict[int, dict[int, dict[str, Any]]] = {}
        for row in rows:
            self.rows.setdefault(row["sequence"], {}).setdefault(row["rank"], row)

    def asks(self, sequence: int) -> dict[int, _Ask]:
        return {
            rank: _Ask(row["op"], row["datatype"], row["sent_bytes"], row["received_bytes"])
            for rank, row in self.rows.get(sequence, {}).items()
        }

    def judge(self, sequence: int) -> Culprit | None:
        asks = self.asks(sequence)
        if len({ask.op for ask in asks.values()}) > 1:
            return self._verdict(sequence, {rank: (ask.op,) for rank, ask in asks.items()}, "operation")
        op = next(iter(asks.values())).op
        types = {rank: ask.datatype for rank, ask in asks.items() if ask.datatype and (ask.sent or ask.received)}
        if len(set(types.values())) > 1:
            return self._verdict(sequence, types, "datatype")
        send_side, receive_side = _SIDES.get(op, (True, True))
        parts = {
            rank: (ask.sent if send_side else None, ask.received if receive_side else None)
            for rank, ask in asks.items()
        }
        parts = _said(parts)
        if _is_uneven(op, asks):
            return None  # all-gather-v and reduce-scatter-v: the parts may differ when the whole agrees
        if len(set(parts.values())) > 1:
            return self._verdict(sequence, parts, "size")
        return self._splits(sequence, asks) if op == "all-to-all" else None

    def _splits(self, sequence: int, asks: dict[int, _Ask]) -> Culprit | None:
        """Over all members, what is handed in must be what is got; who is wrong, the sums do not say."""
        sums = [sum(getattr(ask, side) or 0 for ask in asks.values()) for side in ("sent", "received")]
        whole = self.size is not None and len(asks) == self.size and all(None not in ask for ask in asks.values())
        if not whole or sums[0] == sums[1] or self._is_completed(sequence):
            return None
        text = f"cannot tell who is wrong: {self._at(sequence)} sends {sums[0]:,} B in all and receives {sums[1]:,} B"
        return _culprit([], "hang-mismatch-split", 0.0, [text, *self._lines(sequence, sorted(asks)[:8])])

    def _verdict(self, sequence: int, asked: dict[int, Any], what: str) -> Culprit:
        counts = Counter(asked.values())
        (most, votes), total = counts.most_common(1)[0], len(asked)
        odd = sorted(rank for rank, value in asked.items() if value != most)
        kind, story = what, ""
        if what == "operation" and len(odd) * 2 < total:
            kind, story = self._order(sequence, odd, asked)
        evidence = [f"{self._at(sequence)}: members do not agree in {what}"]
        if votes * 2 <= total:
            evidence += [f"cannot tell who is wrong: no majority among {total} members", *self._groups(sequence, asked)]
            return _culprit([], f"hang-mismatch-{kind}", 0.0, evidence)
        evidence += [story] * bool(story) + self._groups(sequence, asked) + self._lines(sequence, odd[:6])
        certainty = 0.95 if votes >= 3 and not self._is_completed(sequence) else 0.75
        return _culprit(odd, f"hang-mismatch-{kind}", certainty, evidence)

    def _order(self, sequence: int, odd: list[int], asked: dict[int, Any]) -> tuple[str, str]:
        """Say whether the odd ranks exchanged two operations, left one out, or put one in."""
        later = self.asks(sequence + 1)
        majority = Counter(ask.op for rank, ask in later.items() if rank not in odd).most_common(1)
        here = Counter(value[0] for rank, value in asked.items() if rank not in odd).most_common(1)[0][0]
        mine = asked[odd[0]][0]
        next_mine = later[odd[0]].op if odd[0] in later else None
        if not majority or majority[0][0] != mine:
            return ("inserted", "the others do it one sequence later") if next_mine == here else ("operation", "")
        if next_mine == here and not self._shifted(sequence, odd[0]):
            return "order", "two operations are exchanged"
        return "skipped", "one operation was left out: what follows is one sequence early"

    def _shifted(self, sequence: int, rank: int) -> bool:
        """Whether the rank goes on one sequence early after the first two, rather than falling in again."""
        for number in range(sequence + 2, sequence + 8):
            asks = self.asks(number)
            others = Counter(ask.op for other, ask in asks.items() if other != rank).most_common(1)
            if rank in asks and others and asks[rank].op != others[0][0]:
                return True
        return False

    def _at(self, sequence: int) -> str:
        return f"group {self.name}, sequence {sequence}"

    def _is_completed(self, sequence: int) -> bool:
        return all(row["state"] == "completed" for row in self.rows.get(sequence, {}).values())

    def _groups(self, sequence: int, asked: dict[int, Any]) -> list[str]:
        asks, texts = self.asks(sequence), []
        for value, _ in Counter(asked.values()).most_common(4):
            ranks = sorted(rank for rank, other in asked.items() if other == value)
            texts.append(f"{say_ranks(ranks)}: {asks[ranks[0]].says()}")
        return texts

    def _lines(self, sequence: int, ranks: list[int]) -> list[str]:
        texts = []
        for rank in ranks:
            row = self.rows[sequence][rank]
            where = f", called in {row['text']}" if row["text"] else ""
            texts.append(f"{row['file']}: record {row['line']}: rank {rank} {row['task'] or row['op']}{where}")
        return texts


def _said(parts: dict[int, tuple[int | None, int | None]]) -> dict[int, tuple[int | None, int | None]]:
    """Return the sizes of those that say one, on the sides that all of them say: unknown is no other size."""
    told = {rank: part for rank, part in parts.items() if part != (None, None)}
    sides = [all(part[side] is not None for part in told.values()) for side in (0, 1)]
    return {rank: (part[0] if sides[0] else None, part[1] if sides[1] else None) for rank, part in told.items()}


def _is_uneven(op: str, asks: dict[int, _Ask]) -> bool:
    """Whether the parts differ as those of a v-form may: the side that all members share is equal and is their sum."""
    if op not in ("all-gather", "reduce-scatter"):
        return False
    parts = [ask.sent if op == "all-gather" else ask.received for ask in asks.values()]
    wholes = {ask.received if op == "all-gather" else ask.sent for ask in asks.values()}
    return len(wholes) == 1 and None not in parts and sum(part or 0 for part in parts) == next(iter(wholes))


def say_ranks(ranks: list[int]) -> str:
    """Return ``rank 3`` or ``ranks 0, 1, 2``; of more than sixteen as ranges, and of those the first sixteen."""
    parts = [str(rank) for rank in ranks]
    if len(ranks) > MOST_LISTED:
        # Consecutive ranks have one difference between rank and position.
        runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda each: each[1] - each[0])]
        parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    more = f" and {len(parts) - MOST_LISTED} more" if len(parts) > MOST_LISTED else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(parts[:MOST_LISTED])}{more}"


def _culprit(ranks: list[int], kind: str, confidence: float, evidence: list[str]) -> Culprit:
    return {"ranks": ranks, "hosts": [], "kind": kind, "confidence": confidence, "evidence": evidence[:12]}
