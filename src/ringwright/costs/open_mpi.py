"""Which algorithm Open MPI's ``coll/tuned`` takes: forced, from a rules file, or by its built-in thresholds.

Three notions of "size" meet here. An operation's ``size_bytes`` is the nccl-tests size column. The built-in thresholds
count the block of one peer for all-gather, all-to-all, gather, scatter and reduce-scatter-block, the sum of the blocks for
reduce-scatter, the whole vector otherwise. A rules file counts the whole column for all-gather, all-to-all and gather too.
Source: open-mpi/ompi ``ompi/mca/coll/tuned`` and ``docs/tuning-apps/collectives/tuned.rst``; see ``open_mpi.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ringwright.costs.selection import RanksRule, RuleTable, SizeRule
from ringwright.ground.errors import UsageError

PER_PEER_IN_RULES_FILE = frozenset({"scatter"})
RELEASE = "6.1.0a1"  # whose thresholds these are
DEFAULT_FANOUT = 4  # trees and chains, unless a rule or the user says otherwise


@dataclass(frozen=True, slots=True)
class Decision:
    """The algorithm chosen (id and name), its knobs (0: the library's default) and who decided."""

    number: int
    name: str
    ground: str
    fanout: int = 0
    segment_bytes: int = 0
    max_requests: int = 0


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(Path(__file__).with_name("open_mpi.json").read_text())
    return facts


def collectives() -> tuple[str, ...]:
    """Return the collectives that the component implements."""
    return tuple(_facts()["algorithms"])


def names(op: str) -> tuple[str, ...]:
    """Return the algorithms of a collective; the place is the id, and 0 is ``ignore``: the library decides."""
    known = _facts()["algorithms"]
    if op not in known:
        raise UsageError(f"Open MPI's tuned component has no collective '{op}'", remedy=f"one of {', '.join(known)}")
    return tuple(known[op].split())


def number_of(op: str, algorithm: int | str) -> int:
    """Return the id of an algorithm given by id or name; UsageError when the collective has no such algorithm."""
    listed = names(op)
    if isinstance(algorithm, str) and algorithm in listed:
        return listed.index(algorithm)
    if isinstance(algorithm, int) and 0 <= algorithm < len(listed):
        return algorithm
    menu = ", ".join(f"{number} {name}" for number, name in enumerate(listed))
    raise UsageError(f"{op} has no algorithm {algorithm!r} in Open MPI", remedy=f"one of {menu}")


# ------------------------------------------------------------------------------------------------- the built-in choice
def fixed(op: str, p: int, size_bytes: int, commutative: bool = True, disjoint: bool = False) -> tuple[int, str]:
    """Return (id, name) of the built-in decision for ``p`` ranks; ``size_bytes`` as the thresholds count it.

    ``disjoint``: one rank per node; only all-reduce and broadcast have thresholds of their own for that. The component
    has no built-in choice for scan and exscan and takes the linear one.
    """
    rule = fixed_table(commutative, disjoint).find(op, p, size_bytes)
    number = 1 if rule is None else int(rule.algorithm)
    return number, names(op)[number]


@cache
def fixed_table(commutative: bool = True, disjoint: bool = False) -> RuleTable:
    """Return the built-in thresholds as a table, in the sizes of the built-in decision (not those of a rules file)."""
    return RuleTable({op: _rows(thresholds, commutative, disjoint) for op, thresholds in _facts()["decisions"].items()})


def _rows(thresholds: dict[str, Any], commutative: bool, disjoint: bool) -> tuple[RanksRule, ...]:
    placement = "disjoint" if disjoint and "disjoint commutative" in thresholds else "usual"
    rows = thresholds[f"{placement} commutative"]
    if not commutative:
        rows = thresholds.get(f"{placement} other", rows)
    lows = [0, *(below for below, _ in rows)]
    return tuple(
        RanksRule(low, None if below is None else below - 1, _sizes(sizes))
        for low, (below, sizes) in zip(lows, rows, strict=False)
    )


def _sizes(sizes: list[list[int | None]]) -> tuple[SizeRule, ...]:
    lows = [0, *(below for below, _ in sizes)]
    return tuple(
        SizeRule(low or 0, None if below is None else below - 1, algorithm or 0)
        for low, (below, algorithm) in zip(lows, sizes, strict=False)
    )


def threshold_bytes(op: str, p: int, size_bytes: int) -> int:
    """Return what the built-in thresholds count, from the operation's size column."""
    kind = _facts()["size_is"].get(op, "vector")
    if kind == "none":
        return 0
    return size_bytes // max(p, 1) if kind == "block" else size_bytes


def rules_file_bytes(op: str, p: int, size_bytes: int) -> int:
    """Return what a rules file counts, from the operation's size column."""
    if _facts()["size_is"].get(op) == "none":
        return 0
    return size_bytes // max(p, 1) if op in PER_PEER_IN_RULES_FILE else size_bytes


# ------------------------------------------------------------------------------------------------------- all together
def select(
    op: str,
    p: int,
    size_bytes: int,
    *,
    commutative: bool = True,
    disjoint: bool = False,
    algorithm: int | str | None = None,
    rules: RuleTable | None = None,
    distribution: str = "any",
) -> Decision:
    """Return what the component would run: a forced ``algorithm``, else a rule of the file, else the built-in choice.

    ``size_bytes`` is the operation's size column. A rule that names an algorithm which the collective does not have is
    passed over, as the component does; a forced one of that kind is a UsageError.
    """
    forced = 0 if algorithm is None else number_of(op, algorithm)
    if forced:
        return Decision(forced, names(op)[forced], "forced")
    rule = rules.find(op, p, rules_file_bytes(op, p, size_bytes), distribution) if rules else None
    if rule is not None and _is_known(op, rule.algorithm) and number_of(op, rule.algorithm):
        number = number_of(op, rule.algorithm)
        name = names(op)[number]
        return Decision(number, name, "rules file", rule.fanout, rule.segment_bytes, rule.max_requests)
    number, name = fixed(op, p, threshold_bytes(op, p, size_bytes), commutative, disjoint)
    return Decision(number, name, "built-in thresholds")


def _is_known(op: str, algorithm: int | str) -> bool:
    listed = names(op)
    return algorithm in listed if isinstance(algorithm, str) else 0 <= algorithm < len(listed)


def mca_variables(op: str, decision: Decision) -> dict[str, str]:
    """Return the MCA variables that force a decision on the real library."""
    from ringwright.costs.mpi_names import mpi_name

    stem = f"coll_tuned_{mpi_name(op)}_algorithm"
    variables = {"coll_tuned_use_dynamic_rules": "1", stem: str(decision.number)}
    optional = {"segmentsize": decision.segment_bytes, "max_requests": decision.max_requests}
    optional |= {"tree_fanout": decision.fanout, "chain_fanout": decision.fanout}
    return variables | {f"{stem}_{knob}": str(value) for knob, value in optional.items() if value}
