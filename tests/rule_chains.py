"""Draw rules one after another at any site of a graph: each applies or says why not, and what comes out computes the same.

python tests/rule_chains.py 300 --seed 0
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from algebra_cases import CASES
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources.programs.workload_json import read_workload_json
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import RingwrightError
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload

LENGTH = 4
MOST_SITES = 25


def knobs(name: str, workload: Workload, draw: random.Random) -> dict[str, Any]:
    """Draw knobs of a rule, sensible ones more often than not."""
    dims = [dim for value in workload.values for dim, _ in value.dims] or ["b"]
    nodes = [each.name for each in (*workload.tasks, *workload.payloads)]
    drawn: dict[str, dict[str, Any]] = {
        "split-all-reduce": {"dim": draw.choice(["", draw.choice(dims)])},
        "shard-update": {"dim": draw.choice(["", draw.choice(dims)])},
        "hierarchical-all-reduce": {"inner": draw.choice(workload.mesh.axes)[0]},
        "hierarchical-reduce-scatter": {"inner": draw.choice(workload.mesh.axes)[0]},
        "hierarchical-all-to-all": {"inner": draw.choice(workload.mesh.axes)[0]},
        "hierarchical-all-gather": {
            "inner": draw.choice(workload.mesh.axes)[0],
            "first": draw.choice(["inside", "across"]),
        },
        "cut": {
            "dim": draw.choice(dims),
            "parts": draw.choice([2, 3]),
            "through": draw.sample(nodes, draw.choice([0, 0, 0, 1])),
        },
        "fuse": {"others": [draw.choice([each.name for each in workload.payloads] or ["none"])]},
        "loop-gather": {"bidirectional": draw.random() < 0.3},
        "loop-scatter": {"bidirectional": draw.random() < 0.3},
        "next-step": {"through": draw.sample(nodes, draw.choice([0, 0, 1]))},
        "recompute": {"keep": draw.sample([each.name for each in workload.values], draw.choice([0, 0, 1]))},
        "move": {"before": draw.choice([each.name for each in workload.tasks])},
        "order": {"tasks": []},
    }
    return drawn.get(name, {})


def step(workload: Workload, draw: random.Random, tried: Counter[str]) -> Workload:
    """Return the graph with one more rule applied, if one of some drawn sites takes one."""
    names = [each for each in RULES if each != "order"]
    for name in draw.sample(names, len(names)):
        sites = [each.name for each in (*workload.tasks, *workload.payloads, *workload.values)]
        for at in draw.sample(sites, min(len(sites), MOST_SITES)):
            chosen = knobs(name, workload, draw)
            try:
                made = RULES[name](workload, at, **chosen)
            except RewriteError as error:
                tried["refused" if error.remedy else "refused without a remedy"] += 1
                continue
            tried[name] += 1
            return made
    return workload


def chains(count: int, seed: int, tried: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (what was done, what is wrong with it) of so many chains."""
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        case = draw.choice(CASES)
        p = draw.choice([each for each in case.sizes if each <= 6])
        before = after = case.make(p)
        for _ in range(LENGTH):
            after = step(after, draw, tried)
        told = f"{number}: {case.name}, {p} ranks: " + "; ".join(
            f"{each.rule} at {each.at} {dict(each.settings)}" for each in after.applied
        )
        yield told, wrong(before, after)


def wrong(before: Workload, after: Workload) -> str:
    """Return what is wrong with a rewritten graph: an output, a rule of validity, what was declared, its file."""
    findings = check(after, warnings=False)
    if findings:
        return f"not legal: {findings[0]}"
    try:
        proof = prove(before, after, draws=2)
    except RingwrightError as error:
        return f"cannot be carried out: {error}"
    if not proof.equal:
        return f"differs in {proof.differing}"
    old, new = totals(before), totals(after)
    if new.operations - old.operations != sum(each.change.operations for each in after.applied):
        return f"operations: {new.operations - old.operations}"
    for role in {*old.wire_bytes, *new.wire_bytes}:
        declared = sum(each.change.wire_bytes.get(role, 0.0) for each in after.applied)
        if abs(new.wire_bytes.get(role, 0.0) - old.wire_bytes.get(role, 0.0) - declared) > 1e-6:
            return (
                f"wire of {role}: {new.wire_bytes.get(role, 0.0) - old.wire_bytes.get(role, 0.0)}, declared {declared}"
            )
    if abs(new.flops - old.flops - sum(each.change.flops for each in after.applied)) > 1e-6 * max(old.flops, 1.0):
        return f"flops: {new.flops - old.flops}, declared {sum(each.change.flops for each in after.applied)}"
    if new.held_bytes - old.held_bytes > sum(each.change.held_bytes for each in after.applied):
        return f"held: {new.held_bytes - old.held_bytes}, declared {sum(e.change.held_bytes for e in after.applied)}"
    if read_workload_json(workload_json(after), "chain") != after:
        return "does not come back from its file"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tried, bad = Counter[str](), 0
    for told, why in chains(given.count, given.seed, tried):
        if why:
            bad += 1
            print(f"{told}\n    {why}")
    print(f"{given.count} chains, {bad} wrong; applied: {dict(sorted(tried.items()))}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
