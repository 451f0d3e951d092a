"""How a library chooses: tables by ranks and bytes, and trees of ordered tests. Plain data that files are read into.

A table is for each collective a list of communicator rules, each a list of size rules; the first that matches wins, in
both lists. A tree is a list of (test, outcome) tried in order; an outcome is a choice or a further tree. Once a test holds
its outcome stands: a tree below it that matches nothing does not fall back to the next test above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ringwright.ground.errors import UsageError

DISTRIBUTIONS = ("any", "single-node", "one-per-node")

Fact: TypeAlias = int | str | bool
Facts: TypeAlias = Mapping[str, Fact]

_TEST = re.compile(r"(?P<fact>[A-Za-z_]\w*)(?P<relation><=|<|=)(?P<value>\w{1,64})", re.ASCII)
_WORDS = {True: "yes", False: "no"}


# ------------------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True, slots=True)
class SizeRule:
    """From ``size_min_bytes`` up to and with ``size_max_bytes`` (None: no end) use ``algorithm``; 0 is a default."""

    size_min_bytes: int
    size_max_bytes: int | None
    algorithm: int | str
    fanout: int = 0
    segment_bytes: int = 0
    max_requests: int = 0

    def matches(self, size_bytes: int) -> bool:
        """Return whether a message of ``size_bytes`` falls under this rule."""
        return self.size_min_bytes <= size_bytes and (self.size_max_bytes is None or size_bytes <= self.size_max_bytes)


@dataclass(frozen=True, slots=True)
class RanksRule:
    """The size rules for communicators of ``ranks_min`` to ``ranks_max`` ranks (None: no end), placed as said."""

    ranks_min: int
    ranks_max: int | None
    rules: tuple[SizeRule, ...]
    distribution: str = "any"

    def matches(self, ranks: int, distribution: str) -> bool:
        """Return whether a communicator of ``ranks`` ranks falls under these rules."""
        fits = self.ranks_min <= ranks and (self.ranks_max is None or ranks <= self.ranks_max)
        return fits and self.distribution in ("any", distribution)


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Per collective (our spelling) its communicator rules in order."""

    rules: Mapping[str, tuple[RanksRule, ...]] = field(default_factory=dict)

    def find(self, op: str, ranks: int, size_bytes: int, distribution: str = "any") -> SizeRule | None:
        """Return the rule for an operation, or None: no rule, the library's own decision stands.

        ``size_bytes`` is whatever the table counts as the size of that collective. ``distribution`` says how the ranks
        lie on the nodes: ``single-node``, ``one-per-node`` or ``any`` for neither.
        """
        for group in self.rules.get(op, ()):
            if group.matches(ranks, distribution):
                return next((rule for rule in group.rules if rule.matches(size_bytes)), None)
        return None


# -------------------------------------------------------------------------------------------------------------- trees
@dataclass(frozen=True, slots=True)
class Test:
    """One test of a fact: ``comm_size < 8``, ``comm_size = pow2``, ``is_commutative = yes``; value ``any`` holds always."""

    __test__ = False  # not a test case

    fact: str
    relation: str
    value: Fact

    def holds(self, facts: Facts) -> bool:
        """Return whether the test holds; UsageError when the fact is not among ``facts``."""
        if self.value == "any":
            return True
        if self.fact not in facts:
            raise UsageError(f"the rules ask for '{self.fact}', which is not known of this operation")
        known = facts[self.fact]
        if self.value == "pow2":
            return _against_power_of_two(int(known), self.relation, int(facts["comm_size"]))
        value = facts.get(str(self.value), self.value)  # comm_size = node_comm_size compares two facts
        if self.relation == "=":
            return known == value
        return int(known) < int(value) if self.relation == "<" else int(known) <= int(value)

    def __str__(self) -> str:
        value = _WORDS[self.value] if isinstance(self.value, bool) else self.value
        return f"{self.fact}{self.relation}{value}"


def parse_test(text: str) -> Test:
    """Return the test written as ``fact=value``, ``fact<value`` or ``fact<=value``; UsageError otherwise."""
    match = _TEST.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f"'{text}' is not a test", remedy="write fact=value, fact<value or fact<=value")
    value = match["value"]
    if value.isdecimal():
        return Test(match["fact"], match["relation"], int(value))
    if match["relation"] != "=" and value != "pow2":
        raise UsageError(f"'{text}' compares with a word", remedy="write a number after < or <=")
    return Test(match["fact"], match["relation"], {"yes": True, "no": False}.get(value, value))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a tree ends in: an algorithm (or composition) by name, with its parameters."""

    name: str
    knobs: tuple[tuple[str, str], ...] = ()
    kind: str = "algorithm"


@dataclass(frozen=True, slots=True)
class Branch:
    """A test and what stands once it holds."""

    test: Test
    then: Choice | Tree


Tree: TypeAlias = tuple[Branch, ...]


def decide(tree: Choice | Tree, facts: Facts) -> Choice | None:
    """Return the choice of a tree for these facts, or None where the tree is silent."""
    while not isinstance(tree, Choice):
        first = next((branch for branch in tree if branch.test.holds(facts)), None)
        if first is None:
            return None
        tree = first.then
    return tree


def completed(tree: Tree, otherwise: Tree = ()) -> Tree:
    """Return the tree in which an inner list that matches nothing goes on with what follows its test.

    Rules are shorter to write with falling through; files and ``decide`` know trees without. The result spells it out.
    """
    every = (*tree, *otherwise)
    branches: list[Branch] = []
    for position, branch in enumerate(every):
        then = branch.then if isinstance(branch.then, Choice) else completed(branch.then, every[position + 1 :])
        branches.append(Branch(branch.test, then))
        if branch.test.value == "any":
            break
    return tuple(branches)


def largest_power_of_two(ranks: int) -> int:
    """Return the largest power of two not above ``ranks`` (at least 1)."""
    return 1 << max(ranks.bit_length() - 1, 0)


def _against_power_of_two(known: int, relation: str, ranks: int) -> bool:
    if relation == "=":
        return known > 0 and known & (known - 1) == 0
    power = largest_power_of_two(ranks)
    return known < power if relation == "<" else known <= power
