"""A rule of the algebra: a function from Workload to Workload that applies at a site, or says why it does not.

``@rule("split-all-reduce", "AR = AG . RS")`` makes a rule of a function ``(graph, at, **knobs) -> Change`` that edits a graph.
The Workload gets values where it has none, the outcome is checked, and what was applied is kept in ``Workload.applied``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, get_type_hints

from ringwright.graph.algebra.account import copied_bytes, launches, traffic_bytes
from ringwright.graph.algebra.assumed_values import valued
from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.kinds import is_of, kind_of
from ringwright.ground.errors import UsageError
from ringwright.ground.stepwise import tally
from ringwright.model.validity.workloads import check
from ringwright.model.values import Applied, Change
from ringwright.model.workload import Payload, Task, Workload

Edit = Callable[..., Change]


class RewriteError(UsageError):
    """A rule does not apply: which, where, why, and what would help."""

    def __init__(self, rule: str, at: str, why: str, remedy: str = "") -> None:
        super().__init__(
            f"{rule} does not apply at {at}: {why}", where=at, remedy=remedy or f"'{rule}' at another place"
        )
        self.rule, self.at, self.why = rule, at, why


class Refused(Exception):  # noqa: N818 - becomes a RewriteError where the rule is known
    """Why a rule does not apply; ``remedy`` is what would help."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True)
class RewriteRule:
    """A rule: its name, its law in a line, and what it does to a graph."""

    name: str
    law: str
    edit: Edit

    @cached_property
    def knobs(self) -> Mapping[str, Any]:
        """The knobs of the rule, with their defaults."""
        parameters = list(inspect.signature(self.edit).parameters.values())[2:]
        return MappingProxyType({each.name: each.default for each in parameters})

    def __call__(self, workload: Workload, at: str, **knobs: Any) -> Workload:
        """Return the Workload with the rule applied at a task, payload or value; RewriteError where it does not apply."""
        return self.everywhere(workload, [at], **knobs)

    def everywhere(self, workload: Workload, sites: Sequence[str], **knobs: Any) -> Workload:
        """Return the Workload with the rule applied at one site after another, and checked once at the end."""
        self.check_knobs(sites[0] if sites else workload.name, knobs)
        return rewritten(workload, [(self.name, at, knobs) for at in sites])

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.edit)

    def check_knobs(self, at: str, knobs: Mapping[str, Any]) -> None:
        """Raise RewriteError for a knob that the rule has not, that is of another kind, or that it needs and was not given."""
        strange = set(knobs) - set(self.knobs)
        if strange:
            remedy = f"knobs: {', '.join(self.knobs) or 'none'}"
            raise RewriteError(self.name, at, f"it has no knob '{min(strange)}'", remedy)
        missing = [name for name, usual in self.knobs.items() if usual is inspect.Parameter.empty and name not in knobs]
        if missing:
            raise RewriteError(self.name, at, f"it needs '{missing[0]}'", f"{missing[0]}=...")
        for name, value in knobs.items():
            if not is_of(value, self._hints[name]):
                why = f"{name} is {_shortly(value)}, not {kind_of(self._hints[name])}"
                raise RewriteError(self.name, at, why, f"{name}: {kind_of(self._hints[name])}")


def _shortly(value: object) -> str:
    told = repr(value)
    return told if len(told) < 40 else f"{told[:36]} ..."


def _counted(graph: StepGraph) -> dict[str, Any]:
    """Return by how much more is counted of a step than before tasks changed, by the fields of ``Change``."""
    before = graph.tasks.earlier
    new = [graph.tasks[name] for name in before if name in graph.tasks]
    old = [task for task in before.values() if task is not None]
    batches = graph.before.micro_batches
    return {
        "launches": launches(new, batches) - launches(old, batches),
        "traffic_bytes": traffic_bytes(new, batches) - traffic_bytes(old, batches),
        "copied_bytes": copied_bytes(new, graph.values, graph.mesh, batches)
        - copied_bytes(old, graph.values, graph.mesh, batches),
    }


RULES: dict[str, RewriteRule] = {}
REWRITTEN = 12  # work of a task or payload: a Workload that is rewritten is checked as a whole


def rule(name: str, law: str) -> Callable[[Edit], RewriteRule]:
    """Make a rule of a function that edits a graph."""

    def made(edit: Edit) -> RewriteRule:
        RULES[name] = RewriteRule(name, law, edit)
        return RULES[name]

    return made


def _plain(knobs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: list(each) if isinstance(each, tuple) else each for name, each in knobs.items()}


def rewritten(workload: Workload, todo: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Workload:
    """Return the Workload with rules (name, site, knobs) applied one after another, and checked once at the end.

    RewriteError for the first that does not apply, or where the outcome is not legal.
    """
    tally(REWRITTEN * (len(workload.tasks) + len(workload.payloads)))
    graph, changes = StepGraph(valued(workload)), list[Applied]()
    for name, at, knobs in todo:
        chosen = rule_named(name, at)
        chosen.check_knobs(at, knobs)
        graph.tasks.earlier.clear()
        try:
            change = chosen.edit(graph, at, **knobs)
        except Refused as refusal:
            raise RewriteError(name, at, str(refusal), refusal.remedy) from None
        changes.append(Applied(name, at, _plain(knobs), replace(change, **_counted(graph))))
    made = graph.done()
    wrong = check(made, 1, warnings=False)
    if wrong and not check(workload, 1, warnings=False):
        names, sites = (
            ", ".join(dict.fromkeys(part)) for part in zip(*((e.rule, e.at) for e in changes[:3]), strict=True)
        )
        raise RewriteError(names, sites, wrong[0].message, wrong[0].remedy)
    return replace(made, applied=(*workload.applied, *changes))


def rule_named(name: str, at: str = "") -> RewriteRule:
    """Return the rule of that name; RewriteError for none."""
    if name not in RULES:
        raise RewriteError(name, at, "no rule has this name", f"one of: {', '.join(RULES)}")
    return RULES[name]


def replayed(workload: Workload, applied: Iterable[Applied]) -> Workload:
    """Return the Workload with rules applied as they were to another one, and checked once at the end.

    RewriteError for the first that does not apply, or that leaves what is not legal.
    """
    todo = [(each.rule, each.at, each.settings) for each in applied]
    try:
        return rewritten(workload, todo) if todo else workload
    except RewriteError:  # one at a time, to learn which of them it was
        for one in todo:
            workload = rewritten(workload, [one])
        return workload


# ------------------------------------------------------------------------------------------------------------ sites
def payload_at(graph: StepGraph, at: str, *ops: str) -> Payload:
    """Return the payload of that name, of one of these operations; Refused for none."""
    payload = graph.payloads.get(at)
    if payload is None:
        near = [each.name for each in graph.payloads.values() if each.op in ops][:5]
        raise Refused("it is no payload", f"one of: {', '.join(near)}" if near else f"a payload that is an {ops[0]}")
    if payload.op not in ops:
        raise Refused(f"it is an {payload.op}", f"a payload that is an {' or '.join(ops)}")
    if not (payload.source and payload.result) or payload.joint:
        raise Refused("nothing says which values it turns into which", "values for its ends, on one class of ranks")
    return graph.sent_now(payload)


def task_at(graph: StepGraph, at: str, *meanings: str) -> Task:
    """Return the task of that name, of one of these meanings; Refused for none."""
    task = graph.tasks.get(at)
    if task is None:
        raise Refused("it is no task", "the name of a task")
    meaning = task.work.meaning if task.work else ""
    if meanings and meaning not in meanings:
        known = f"it is '{meaning}'" if meaning else "nobody knows what it computes"
        raise Refused(known, f"a task that is {' or '.join(meanings)}")
    return task
