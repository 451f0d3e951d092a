"""Which algorithm MPICH takes: ordered tests of the group, the bytes and the operation.

``size_bytes`` is the operation's nccl-tests size column; MPICH's ``avg_msg_size`` is one rank's block for all-to-all and
the vector otherwise, ``total_msg_size`` the column for all-gather and reduce-scatter and ranks times the vector otherwise.
Source: pmodels/mpich ``src/mpi/coll/cvars.txt`` and ``maint/tuning/coll/mpir/generic.json``; see ``selection.json``. The
``paper`` rule is the 2048 B of Thakur, Rabenseifner, Gropp (IJHPCA 2005), where the current release ships 8 B.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from ringwright.costs.mpi_names import mpi_name
from ringwright.costs.selection import Branch, Choice, Fact, Test, Tree, completed, decide, parse_test
from ringwright.ground.errors import UsageError

_COLUMN_IS_TOTAL = frozenset(
    {"all-gather", "all-gather-v", "reduce-scatter", "reduce-scatter-block", "gather", "scatter"}
)


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(Path(__file__).with_name("selection.json").read_text())
    return facts


def names(op: str) -> tuple[str, ...]:
    """Return the algorithms of a collective inside one group of ranks, by the names of the library's own variables."""
    known = _facts()["algorithms"]
    if op not in known:
        raise UsageError(f"MPICH has no collective '{op}'", remedy=f"one of {', '.join(known)}")
    return tuple(known[op].split())


@cache
def tree(op: str, paper: bool = False) -> Tree:
    """Return the tests of a collective, spelled out; ``paper`` takes the published rule where the release departs."""
    names(op)
    rules = _facts()["paper"].get(op) if paper else None
    return completed(_branches(op, rules or _facts()["rules"][op]))


@cache
def selection() -> Tree:
    """Return the tests of all blocking collectives, as MPICH's own file holds them."""
    return tuple(Branch(Test("collective", "=", mpi_name(op)), tree(op)) for op in _facts()["rules"])


def _branches(op: str, rules: list[list[Any]]) -> Tree:
    branches: list[Branch] = []
    for test, outcome in rules:
        before = branches[-1].test.fact if branches else "comm_type"
        then = _choice(op, outcome) if isinstance(outcome, str) else _branches(op, outcome)
        branches.append(Branch(parse_test(f"{before}=any" if test == "any" else test), then))
    return tuple(branches)


def _choice(op: str, outcome: str) -> Choice:
    name, *knobs = outcome.split()
    scope, _, short = name.rpartition(":")
    full = f"MPIR_{mpi_name(op).capitalize()}_{scope or 'intra'}_{short}"
    return Choice(full, tuple((knob, value) for knob, _, value in (pair.partition("=") for pair in knobs)))


# --------------------------------------------------------------------------------------------------------- the question
# parameters: each is a fact that a test of the rule file may ask for
def facts(
    op: str,
    p: int,
    size_bytes: int,
    count: int,
    commutative: bool = True,
    builtin: bool = True,
    *,
    regular: bool = True,
    in_place: bool = False,
    hierarchical: bool = False,
    consecutive: bool = False,
    inter: bool = False,
    node_ranks: int = 0,
    threaded: bool = False,
) -> dict[str, Fact]:
    """Return what the tests ask about an operation of ``p`` ranks, ``size_bytes`` (size column) and ``count`` elements.

    ``hierarchical``: the group spans several nodes with several ranks on one; ``consecutive``: ranks are numbered node
    by node; ``inter``: between two groups; ``node_ranks``: ranks of the group on this node (0: not all on one).
    """
    column_is_total = op in _COLUMN_IS_TOTAL
    block = op.startswith("all-to-all") or column_is_total
    return {
        "collective": mpi_name(op),
        "comm_type": "inter" if inter else "intra",
        "comm_size": p,
        "node_comm_size": node_ranks,
        "comm_hierarchy": "parent" if hierarchical else "flat",
        "avg_msg_size": size_bytes // max(p, 1) if block else size_bytes,
        "total_msg_size": size_bytes if block else size_bytes * p,
        "count": count,
        "is_commutative": commutative,
        "is_op_built_in": builtin,
        "is_block_regular": regular,
        "is_sendbuf_inplace": in_place,
        "is_node_consecutive": consecutive,
        "is_multi_threaded": threaded,
    }


def choose(
    op: str,
    p: int,
    size_bytes: int,
    count: int,
    commutative: bool = True,
    builtin: bool = True,
    *,
    algorithm: str | None = None,
    paper: bool = False,
    rules: Tree | None = None,
    **more: Any,
) -> Choice:
    """Return the algorithm that MPICH would run (arguments as in ``facts``).

    ``algorithm`` forces one by its variable's name (``ring``); ``rules`` is a tree read from a selection file and stands
    before the built-in tests; ``paper`` as in ``tree``.
    """
    if algorithm is not None:
        return forced(op, algorithm)
    known = facts(op, p, size_bytes, count, commutative, builtin, **more)
    choice = decide(rules, known) if rules else None
    if choice is None:
        choice = decide(tree(op, paper), known)
    if choice is None:
        raise UsageError(
            f"MPICH's rules say nothing of {op} on {p} ranks", remedy=f"force one of {', '.join(names(op))}"
        )
    return choice


def forced(op: str, algorithm: str) -> Choice:
    """Return the choice that forces an algorithm by its short name (``ring``) or its full one."""
    listed = names(op)
    if short_name(algorithm) not in listed:
        raise UsageError(f"{op} has no algorithm '{algorithm}' in MPICH", remedy=f"one of {', '.join(listed)}")
    scope = "allcomm" if op in ("gather-v", "scatter-v") else "intra"
    return _choice(op, f"{scope}:{short_name(algorithm)}")


def short_name(name: str) -> str:
    """Return the name a variable takes: ``MPIR_Allreduce_intra_ring`` -> ``ring``."""
    for scope in ("_intra_", "_inter_", "_allcomm_"):
        if name.startswith("MPI") and scope in name:
            return name.split(scope, 1)[1].removeprefix("sched_")
    return name


def cvar(op: str, choice: Choice) -> dict[str, str]:
    """Return the environment variable that forces this choice on the real library."""
    scope = "INTER" if "_inter_" in choice.name else "INTRA"
    variable = f"MPIR_CVAR_{mpi_name(op).upper()}_{scope}_ALGORITHM"
    return {variable: short_name(choice.name)}
