"""Transfers of a network, from whatever source, and what is told of their bursts: the columns, and the ground they stand on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringwright.analysis.traffic.burst_document import NicBursts, ToldBursts
from ringwright.analysis.traffic.bursts import bursts_of

BY_NIC, BY_RANK, BY_CLASS = "NIC", "rank", "class"
_UNSIZED = "transfers of unknown size: a burst that holds one has no size; bytes are a lower bound"


@dataclass(frozen=True)
class Transfers:
    """What a network carried, a value of each column for each transfer.

    ``ends_s`` None: only beginnings are known. ``of``: what a sender is, a NIC by name or a rank, by number or by the name of its
    class. ``ground`` says what the times and sizes are, ``limits`` what the figures lack; ``window_s`` is the time that was
    watched.
    """

    senders: Sequence[Any]
    starts_s: Sequence[float]
    sizes_bytes: Sequence[float | None]
    ends_s: Sequence[float] | None = None
    receivers: Sequence[Any] | None = None
    phases: Sequence[str | None] | None = None
    steps: Sequence[int | None] | None = None
    of: str = BY_RANK
    ground: str = ""
    limits: tuple[str, ...] = ()
    window_s: tuple[float, float] | None = None


def told(transfers: Transfers, gap_s: float | None = None) -> ToldBursts:
    """Return the bursts of transfers with their ground.

    ``gap_s``: the longest pause within a burst, s; the usual one if left out. UsageError for a negative one.
    """
    bursts = bursts_of(
        transfers.senders,
        transfers.starts_s,
        transfers.sizes_bytes,
        end_s=transfers.ends_s,
        to=transfers.receivers,
        phase=transfers.phases,
        step=transfers.steps,
        gap_s=gap_s,
        window_s=transfers.window_s,
    )
    # Ranks that are alike come as classes, by name.
    of = (
        BY_CLASS
        if transfers.of == BY_RANK and any(isinstance(sender, str) for sender in transfers.senders)
        else transfers.of
    )
    nics: list[NicBursts] = [{**row, "nic": _named(row["nic"], of)} for row in bursts["nics"]]
    unsized = (_unsized(bursts["unsized"], bursts["transfers"]),) if bursts["unsized"] else ()
    return {**bursts, "nics": nics, "of": of, "ground": transfers.ground, "limits": [*transfers.limits, *unsized]}


def _unsized(count: int, transfers: int) -> str:
    if count == transfers:
        return "the size of no transfer is known"
    return f"{count:,} of {transfers:,} {_UNSIZED}"


def _named(sender: str, of: str) -> str:
    return f"rank {sender}" if of != BY_NIC and sender.isdigit() else sender
