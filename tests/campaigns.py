"""Which cases of a long list run each time: some of them, that meet every plain value of every parameter; all in a campaign.

A test marked ``sampled(n, *more)`` holds one behaviour over more inputs than a person waits for. ``n`` of its cases run each time,
and as many more as it takes for each name, number and flag among its parameters to be met once, but those of ``more``; ``pytest
--campaigns`` runs them all, as does whoever names a test by ``::``. ``sampled(0)`` leaves to campaigns alone what a smaller test
holds too, named beside it. Of papers that take long, a few rows (``few``, tests/slow_papers.py) are computed anew each time."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

PLAIN = (str, int, float, type(None))  # what a parameter's value must be for its name to count


def spread(cases: Sequence[tuple[str, Mapping[str, object]]], n: int, *more: str) -> set[str]:
    """Return the names of the cases that run: n or more of them, chosen by their own names, so that a new one moves no other.

    Args:
        cases: of each its name, and its parameters.
        n: how many run at least.
        more: parameters whose values need not all be met, more inputs of one kind; ``*`` for all of them.
    """
    drawn = sorted(cases, key=lambda case: zlib.crc32(case[0].encode()))
    plain = {
        case: {(name, of) for name, of in values.items() if isinstance(of, PLAIN) and not {name, "*"} & {*more}}
        for case, values in cases
    }
    left = set().union(*plain.values())
    kept = []
    for name, _ in drawn:
        met = left & plain[name]
        if met:
            left -= met
            kept.append(name)
    rest = [name for name, _ in drawn if name not in kept]
    return {*kept, *rest[: max(0, n - len(kept))]}


def few(rows: Sequence[Mapping[str, Any]], n: int) -> list[Any]:
    """Return ``n`` rows of a paper, chosen by their figures, its headline among them where it is there."""
    drawn = sorted(rows, key=lambda row: (not row.get("headline"), zlib.crc32(row["figure"].encode())))
    return [row for row in rows if row in drawn[:n]]


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the items that only a campaign runs."""
    sampled: dict[str, list[pytest.Item]] = defaultdict(list)
    out: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("sampled"):
            sampled[item.nodeid.partition("[")[0]].append(item)
    for group in sampled.values():
        mark = group[0].get_closest_marker("sampled")
        assert mark is not None
        cases = [(item.name, item.callspec.params if hasattr(item, "callspec") else {}) for item in group]
        kept = spread(cases, *mark.args)
        out += [item for item in group if item.name not in kept]
    return out
