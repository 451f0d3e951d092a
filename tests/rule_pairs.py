"""Draw pairs of rules at disjoint sites of one graph: applied in either order they must give the same graph, with the same numbers.

python tests/rule_pairs.py 1000 --seed 0
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

from algebra_cases import CASES, Case
from ringwright.graph.algebra import RULES
from ringwright.graph.algebra.equality import prove
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload

SIZES = (2, 3, 4, 6)


def renamed(workload: Workload, mark: str) -> Workload:
    """Return the graph with ``mark`` before every name."""

    def named(name: str) -> str:
        return f"{mark}{name}" if name else name

    tasks = tuple(
        replace(
            each,
            name=named(each.name),
            reads=tuple((named(name), distance) for name, distance in each.reads),
            writes=tuple(map(named, each.writes)),
        )
        for each in workload.tasks
    )
    payloads = tuple(
        replace(
            each,
            name=named(each.name),
            source=named(each.source),
            result=named(each.result),
            producers=tuple(map(named, each.producers)),
            consumers=tuple((named(name), distance) for name, distance in each.consumers),
        )
        for each in workload.payloads
    )
    edges = tuple(replace(each, src=named(each.src), dst=named(each.dst)) for each in workload.edges)
    values = tuple(replace(each, name=named(each.name)) for each in workload.values)
    return replace(workload, tasks=tasks, payloads=payloads, edges=edges, values=values)


def beside(one: Workload, other: Workload) -> Workload:
    """Return both graphs as one step."""
    left, right = renamed(one, "l."), renamed(other, "r.")
    return replace(
        left,
        tasks=left.tasks + right.tasks,
        payloads=left.payloads + right.payloads,
        edges=left.edges + right.edges,
        values=left.values + right.values,
    )


def applied(workload: Workload, case: Case, mark: str) -> Workload:
    for rule, at, knobs in case.rules:
        marked = dict(knobs)
        for knob in ("through", "others", "keep", "also"):
            if knob in marked:
                names = marked[knob].split(",") if isinstance(marked[knob], str) else marked[knob]
                marked[knob] = [f"{mark}{name}" for name in names]
        workload = RULES[rule](workload, f"{mark}{at}", **marked)
    return workload


def shape(workload: Workload) -> tuple[object, ...]:
    """Return the parts of a graph without the order in which they are listed."""
    named = [tuple(sorted(map(repr, part))) for part in (workload.tasks, workload.payloads, workload.values)]
    return *named, frozenset(workload.edges), workload.policy.boundary


def pairs(count: int, seed: int) -> Iterator[tuple[str, bool]]:
    """Yield (what was drawn, whether both orders agree) of so many pairs."""
    draw = random.Random(seed)
    for _ in range(count):
        p = draw.choice(SIZES)
        fit = [case for case in CASES if p in case.sizes]
        while True:
            one, other = draw.choice(fit), draw.choice(fit)
            left, right = one.make(p), other.make(p)
            if left.mesh == right.mesh:
                break
        both = beside(left, right)
        first = applied(applied(both, one, "l."), other, "r.")
        last = applied(applied(both, other, "r."), one, "l.")
        agree = shape(first) == shape(last) and not check(first, warnings=False) and prove(both, first, draws=1).equal
        yield (
            f"{one.name} | {other.name}, {p} ranks",
            agree and prove(first, last, draws=1, seed=draw.randrange(1 << 30)).equal,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong = [what for what, agree in pairs(given.count, given.seed) if not agree]
    print(f"{given.count} pairs, {len(wrong)} of which the order matters")
    for what in wrong[:20]:
        print(what)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
