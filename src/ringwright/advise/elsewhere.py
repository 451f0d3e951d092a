"""What other verbs advise on the same job, where that is no change here: why it is none, and the verb that shows more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringwright.advise.document import RefusedAdvice
from ringwright.advise.layers.operations import LATE, LONGER, main_operations
from ringwright.advise.settings import OPERATION, Setting, Setup
from ringwright.algorithms.searching import OutOfTimeError, limited
from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.exposed.overlap_account import patterns
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import format_size
from ringwright.jobs.aggregated import competitors, fabric_costs, gains, stepped, switches_add
from ringwright.jobs.pricing.costs import LIBRARY

if TYPE_CHECKING:
    from ringwright.advise.evaluation import Evaluator
    from ringwright.jobs.study import PolicyResult

MOST = 4  # sentences of one kind


def told_elsewhere(
    evaluator: Evaluator, result: PolicyResult, layers: Sequence[str], recording: str, until: float = math.inf
) -> tuple[list[RefusedAdvice], bool]:
    """Return what the audit of overlap and the map of what the network's switches add say of a job; whether seconds ended it.

    ``result`` is the step as it is; ``recording`` how the recording is named on a command line. ``until`` is of the monotonic
    clock.
    """
    told: list[RefusedAdvice] = []
    if "rewrites" in layers:
        told += list(_fusions(evaluator, recording))[:MOST]
    if "switch" in layers:
        try:
            with limited(until):
                told += list(_in_network(evaluator, result))[:MOST]
        except OutOfTimeError:
            told.append({"what": "switch: operations that it does not help", "why": LATE, "remedy": LONGER})
            return told, True
    return told, False


def _fusions(evaluator: Evaluator, recording: str) -> Iterator[RefusedAdvice]:
    """Yield the fusions of a recording that were due and did not fire."""
    trace = evaluator.situation.trace
    if trace is None:
        return
    for row in patterns(overlap(trace).get("fusions", [])):
        if row["missed"]:
            gain = f", at most {row['gain_us'][1] / 1e3:,.2f} ms of it" if row["gain_us"] else ""
            yield {
                "what": f"rewrites: {row['pattern']}",
                "why": f"{row['fired']:,} of {row['expected']:,} fired, for {row['why']}; what it gains is not simulated{gain}",
                "remedy": f"{row['switch']}; ringwright summary {recording} tells where",
            }


def _in_network(evaluator: Evaluator, result: PolicyResult) -> Iterator[RefusedAdvice]:
    """Yield the operations that gain nothing by switches that add, on a machine that has such switches."""
    situation = evaluator.situation
    costs = fabric_costs(situation.job(Setup()))
    if situation.topology is None or costs is None or not switches_add(situation.topology):
        return
    operations = main_operations(result)
    hosts = stepped(situation.job(Setup()), situation.mpi or LIBRARY, result)
    tried = []
    for system in competitors(LIBRARY):
        setup = Setup.of(Setting("switch", f"{OPERATION}{each.op}", system, "", "") for each in operations)
        try:
            tried.append(stepped(situation.job(setup), system, evaluator.result(setup)))
        except RingwrightError:
            continue
    network = min((each for each in tried if each.row.in_network), key=lambda each: each.step_us, default=None)
    known = {(each.op, each.size_bytes) for each in operations}
    for row in gains(hosts, network, tried):
        if row.verdict != "gains" and (row.op, row.size_bytes) in known:
            yield {
                "what": f"switch: {row.op} of {format_size(row.size_bytes)} along {row.role}",
                "why": row.why,
                "remedy": f"ringwright simulate --algorithm {LIBRARY},{','.join(competitors(LIBRARY))} tells of every operation",
            }
