"""What a page may hold: large matrices, maps and time courses brought to a bounded size, each with a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringwright.analysis.summary_view import ListedCommunicator, SeenCourse, SeenPair, SeenSummary
from ringwright.ground.units import format_size
from ringwright.reports.layout import printable

MOST_RANKS = 256  # ranks drawn one by one; above it the matrix is over hosts
MOST_VALUES = 20_000  # different byte values kept exactly
MOST_TOLD = 4  # pairs of a matrix in words
MOST_COMMUNICATORS = 64
MOST_SEGMENTS = 20_000
MOST_BINS = 240
LONGEST_TEXT = 300
_EPOCH_LIKE_S = 1e8  # no job runs three years; a larger start is a calendar time


def short(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return a printable text of bounded length."""
    text = printable(str(value)[: longest + 1])
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class MatrixPicture:
    """A byte matrix of ``size`` rows and columns, a label and a tick for each.

    ``bands`` are first row and name of each host, ``values`` the distinct bytes, ``sent`` (src, dst, index into values; flat),
    ``groups`` the first row of each host, ``words`` for those who do not see it.
    """

    size: int
    labels: list[str]
    ticks: list[str]
    bands: list[tuple[int, str]]
    values: list[int]
    sent: list[int] = field(metadata={"key": "cells"})
    groups: list[int]
    words: str
    unit: str
    note: str


def matrix(view: SeenSummary) -> MatrixPicture | None:
    """Return the byte matrix for drawing, or None without pairs."""
    pairs = view.pair_bytes
    if not pairs:
        return None
    top = max(max(int(p.src), int(p.dst)) for p in pairs)
    hosts = {int(r.rank): str(r.host) for r in view.ranks if r.rank is not None and r.host}
    if top < MOST_RANKS:
        labels = [f"rank {r} ({short(hosts[r], 60)})" if r in hosts else f"rank {r}" for r in range(top + 1)]
        groups = [r for r in range(1, top + 1) if hosts.get(r) != hosts.get(r - 1)]
        cells: list[tuple[int, int, float]] = [(int(p.src), int(p.dst), p.bytes) for p in pairs]
        bands = [(r, short(hosts.get(r, ""), 60)) for r in (0, *groups)] if hosts else []
        ticks = [str(r) for r in range(top + 1)]
        return _encoded(cells, labels, "rank", "", ticks=ticks, groups=groups, bands=bands)
    if len(hosts) > top and len(set(hosts.values())) > 1:
        return _by_host(pairs, hosts)
    return _by_block(pairs, top)


def _by_host(pairs: list[SeenPair], hosts: dict[int, str]) -> MatrixPicture:
    """Sum ranks to hosts in order of first rank; beyond the limit keep the hosts with most bytes."""
    order = list(dict.fromkeys(hosts[rank] for rank in sorted(hosts)))
    summed: dict[tuple[str, str], float] = {}
    for pair in pairs:
        key = (hosts[int(pair.src)], hosts[int(pair.dst)])
        summed[key] = summed.get(key, 0) + pair.bytes
    note = f"{len(hosts):,} ranks are drawn as {len(order):,} hosts; traffic inside a host is on the diagonal"
    if len(order) > MOST_RANKS:
        weight = dict.fromkeys(order, 0.0)
        for (src, dst), moved in summed.items():
            weight[src] += moved
            weight[dst] += moved
        kept = set(sorted(order, key=lambda name: -weight[name])[:MOST_RANKS])
        note += f"; the {MOST_RANKS} hosts with most bytes are shown, {len(order) - MOST_RANKS:,} are cut"
        order = [name for name in order if name in kept]
    at = {name: row for row, name in enumerate(order)}
    cells = [(at[s], at[d], moved) for (s, d), moved in summed.items() if s in at and d in at]
    return _encoded(cells, [short(name, 60) for name in order], "host", note)


def _by_block(pairs: list[SeenPair], top: int) -> MatrixPicture:
    """Sum ranks to blocks of neighbours, for a job whose ranks could not be placed on hosts."""
    width = -(-(top + 1) // MOST_RANKS)
    summed: dict[tuple[int, int], float] = {}
    for pair in pairs:
        key = (int(pair.src) // width, int(pair.dst) // width)
        summed[key] = summed.get(key, 0) + pair.bytes
    labels = [f"ranks {first} to {min(first + width - 1, top)}" for first in range(0, top + 1, width)]
    note = f"{top + 1:,} ranks are drawn in blocks of {width}, as their hosts are not known"
    ticks = [str(first) for first in range(0, top + 1, width)]
    return _encoded([(s, d, moved) for (s, d), moved in summed.items()], labels, "block", note, ticks=ticks)


def _encoded(
    cells: list[tuple[int, int, float]],
    labels: list[str],
    unit: str,
    note: str,
    *,
    ticks: Sequence[str] = (),
    groups: Sequence[int] = (),
    bands: Sequence[tuple[int, str]] = (),
) -> MatrixPicture:
    """Store each distinct value once: an even pattern, the usual case, then costs a few bytes per cell."""
    amounts = {moved for _, _, moved in cells}
    if len(amounts) > MOST_VALUES:
        cells = [(s, d, float(f"{moved:.3g}")) for s, d, moved in cells]
        amounts = {moved for _, _, moved in cells}
        note = "; ".join(part for part in (note, "bytes are rounded to three digits") if part)
    values = sorted(amounts)
    index = {value: at for at, value in enumerate(values)}
    flat = [number for s, d, moved in sorted(cells) for number in (s, d, index[moved])]
    return MatrixPicture(
        size=len(labels),
        labels=labels,
        ticks=list(ticks or labels),
        bands=list(bands),
        values=[round(value) for value in values],
        sent=flat,
        groups=list(groups),
        words=_in_words(cells, labels, unit),
        unit=unit,
        note=note,
    )


def _in_words(pairs: list[tuple[int, int, float]], labels: list[str], unit: str) -> str:
    """Return what a matrix shows, for those who do not see it: how many pairs, how many bytes, and the largest."""
    sent = sorted((each for each in pairs if each[2] > 0), key=lambda each: -each[2])
    largest = ", ".join(f"{labels[src]} to {labels[dst]} {format_size(moved)}" for src, dst, moved in sent[:MOST_TOLD])
    return (
        f"Bytes from each {unit} (row) to each {unit} (column): {len(sent):,} of {len(labels) ** 2:,} pairs send, "
        f"{format_size(sum(moved for *_, moved in sent))} in all" + (f". Most: {largest}" if largest else "")
    )


@dataclass(frozen=True, slots=True)
class MapRow:
    """A communicator over ranks, ``segments`` as flat triples of start, step and count."""

    label: str
    role: str
    segments: list[int]


@dataclass(frozen=True, slots=True)
class CommunicatorMap:
    """Communicators over ``ranks`` ranks, and their roles."""

    ranks: int
    rows: list[MapRow]
    roles: list[str]
    note: str


def communicator_map(view: SeenSummary) -> CommunicatorMap | None:
    """Return communicators over ranks for drawing, or None when no member is known."""
    listed = [c for c in view.communicator_list if any(m >= 0 for m in c.members or [])]
    if not listed:
        return None
    ranks = 1 + max(max(c.members or ()) for c in listed)
    chosen = _representative(listed)
    chosen.sort(key=lambda c: (-(c.size or 0), c.role or "~", min(m for m in c.members or () if m >= 0)))
    rows: list[MapRow] = []
    spent = 0
    for item in chosen:
        parts = segments(sorted(m for m in item.members or () if m >= 0))
        spent += len(parts) // 3
        if spent > MOST_SEGMENTS:
            break
        role = short(item.role or "unknown", 24)
        rows.append(MapRow(f"{item.communicator} · {item.size} ranks", role, parts))
    cut = len(view.communicator_list) - len(rows)
    note = f"{cut:,} of {len(view.communicator_list):,} communicators are not drawn" if cut else ""
    return CommunicatorMap(ranks, rows, sorted({row.role for row in rows}), note)


def _representative(listed: list[ListedCommunicator]) -> list[ListedCommunicator]:
    """Return at most 64 communicators: one of each role and size first, then those with most bytes."""
    ordered = sorted(listed, key=lambda c: (-(c.bytes or 0), c.communicator))
    first: dict[tuple[Any, Any], int] = {}
    for at, item in enumerate(ordered):
        first.setdefault((item.role, item.size), at)
    picked = list(first.values())[:MOST_COMMUNICATORS]
    taken = set(picked)
    picked += [at for at in range(len(ordered)) if at not in taken][: MOST_COMMUNICATORS - len(picked)]
    return [ordered[at] for at in picked]


def segments(members: Sequence[int]) -> list[int]:
    """Return sorted numbers as flat (start, step, count) triples: ``[0, 8, 16, 24]`` -> ``[0, 8, 4]``."""
    flat: list[int] = []
    at = 0
    while at < len(members):
        step = members[at + 1] - members[at] if at + 1 < len(members) else 1
        count = 1
        while at + count < len(members) and members[at + count] - members[at + count - 1] == step:
            count += 1
        flat += [members[at], step, count]
        at += count
    return flat


def time_origin_s(timeline: SeenCourse | None) -> float:
    """Return what to subtract from times: a clock that counts from 1970 is shown from the first bin on."""
    start_s = timeline.start_s if timeline else 0.0
    return start_s if start_s >= _EPOCH_LIKE_S else 0.0


def rebinned(values: Sequence[float], bins: int) -> list[float]:
    """Return values summed into at most ``bins`` equal bins."""
    width = max(1, -(-len(values) // bins))
    return [sum(values[at : at + width]) for at in range(0, len(values), width)]


def head(rows: Iterable[Any], most: int) -> tuple[list[Any], int]:
    """Return the first ``most`` rows and how many were left out."""
    listed = list(rows)
    return listed[:most], max(0, len(listed) - most)
