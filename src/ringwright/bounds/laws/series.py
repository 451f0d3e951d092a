"""The law of series: times are compared only where the call is the same and nothing but the network can have changed them."""

from __future__ import annotations

from ringwright.bounds.laws.law import Law

LEAST_RANKS = 2


def incomparable(size_bytes: int | None, ranks: int, queued: bool) -> str:
    """Return why a call's time is in no series; empty where it may be.

    Parameters
    ----------
    size_bytes
        Of the call; None: unknown, so that it may be a larger one.
    ranks
        That saw it; one alone may have waited for the others.
    queued
        Whether it began while an earlier call of its rank was under way.
    """
    if size_bytes is None:
        return "size unknown"
    if ranks < LEAST_RANKS:
        return "seen on one rank"
    return "begun while an earlier call of its rank was under way: its time may hold that one's" if queued else ""


LAWS = (
    Law(
        "series",
        "times are compared over calls of known size, seen on two ranks or more, from step to step",
        "a collective ends no sooner than its last rank begins: what one rank alone saw may be waiting",
        incomparable,
        kept=((1024, 2, False), (0, 8, False)),
        broken=((None, 2, False), (1024, 1, False), (1024, 2, True)),
    ),
)
