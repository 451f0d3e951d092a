"""Gathers of parameters ahead of their layers, as the lists of FSDP2: ``set_modules_to_forward_prefetch`` and its twin.

A policy lets the gather of a layer begin when another layer ends; FSDP2 starts gathers where a module's pass begins. So a gather
belongs to the module whose pass is next, and one that may begin before its direction begins with it. ``root`` is the module that
was sharded last: it holds what does not repeat. As JSON, and as Python that finds the modules by name and calls both functions.
Source: pytorch/pytorch 128884 and ``torch/distributed/fsdp/_fully_shard`` (PyTorch 2.6 and later).

Read back, nothing of the Python is run: the constants in front are read from it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.graph.frameworks.prefetch import ROOT_UNIT, PrefetchPlan
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.workload import Payload, Workload

EXPORTS = {"fsdp2-prefetch": "as_json", "fsdp2-prefetch-py": "as_python"}
_GATHER = re.compile(r"(?:gather|regather)\.(?P<unit>.+)\.(?P<role>dp|edp)")

_HOOK = '''\
"""Gathers ahead: call prefetch(model) behind the last fully_shard and before the first step."""

POLICY = {policy}
FORWARD = {forward}
BACKWARD = {backward}


def prefetch(model, names=None):
    """Give the sharded modules of a model their lists; ``names``: unit -> name in model.named_modules(), where it has another.

    ``layer7`` is looked for as a module whose name ends in ``.7``, ``layer7.experts`` as one inside it whose name ends so.
    """
    sharded = {{name: each for name, each in model.named_modules() if hasattr(each, "set_modules_to_forward_prefetch")}}

    def unit(wanted):
        if wanted == "root":
            return model
        name = (names or {{}}).get(wanted)
        block, _, inner = wanted.partition(".")
        number = block[5:] if block.startswith("layer") else block
        fit = [each for each in sharded if each == name or (name is None and _is_called(each, number, inner))]
        if len(fit) != 1:
            said = "no sharded module is" if not fit else "several sharded modules are"
            known = sorted(sharded)[:20]
            raise KeyError(f"{{said}} {{name or wanted}}: prefetch(model, names={{{{{{wanted!r}}: NAME}}}}), of {{known}}")
        return sharded[fit[0]]

    for each, ahead in FORWARD.items():
        unit(each).set_modules_to_forward_prefetch([unit(other) for other in ahead])
    for each, ahead in BACKWARD.items():
        unit(each).set_modules_to_backward_prefetch([unit(other) for other in ahead])


def _is_called(name, number, inner):
    words = name.split(".")
    return words[-1] == number if not inner else words[-1] == inner and number in words[:-1]
'''


def prefetch_plans(workload: Workload) -> dict[str, PrefetchPlan]:
    """Return the plan of each kind of ranks by its name.

    Raises UsageError where no parameters are gathered layer by layer, where a gather begins in the midst of another pass, and for
    urgencies and rewrites, which FSDP2 does not carry out.
    """
    queue, label = workload.policy.queue, workload.policy.label
    if workload.policy.rewrites or (queue is not None and (queue.keys or queue.random is not None)):
        raise UsageError(
            f"FSDP2 gathers module by module, first come first served: {label} cuts, fuses or overtakes",
            where=workload.name,
            remedy="a policy that only gathers ahead, such as centauri:ahead=4",
        )
    plans = {each.name: _plan(workload, each.name) for each in workload.classes if any(_gathers(workload, each.name))}
    if not plans:
        raise UsageError(
            f"{workload.name} gathers no parameters layer by layer", remedy="a fully sharded job: --parallel fsdp"
        )
    return plans


def as_json(workload: Workload) -> bytes:
    """Return the lists of each kind of ranks as JSON, UTF-8."""
    plans = {
        of: {"policy": plan.policy, "forward": plan.forward, "backward": plan.backward}
        for of, plan in prefetch_plans(workload).items()
    }
    return (json.dumps({"fsdp2_prefetch": plans}, indent=1) + "\n").encode()


def as_python(workload: Workload) -> bytes:
    """Return the lists as a module with a function that applies them, UTF-8; UsageError where kinds of ranks differ."""
    plans = prefetch_plans(workload)
    if len(plans) > 1:
        raise UsageError(
            f"{len(plans)} kinds of ranks have layers of their own: {', '.join(plans)}", remedy="--to fsdp2-prefetch"
        )
    (plan,) = plans.values()
    return _HOOK.format(
        policy=repr(plan.policy), forward=_literal(plan.forward), backward=_literal(plan.backward)
    ).encode()


def _literal(ahead: Mapping[str, tuple[str, ...]]) -> str:
    rows = "".join(f"    {unit!r}: {list(others)!r},\n" for unit, others in ahead.items())
    return "{\n" + rows + "}" if rows else "{}"


def _gathers(workload: Workload, of: str) -> Iterator[tuple[str, Payload]]:
    """Yield (unit, gather of its parameters) of a kind of ranks."""
    for payload in workload.payloads:
        match = _GATHER.fullmatch(payload.name.removeprefix(f"{of}.")) if payload.of == of else None
        if match and payload.op == "all-gather" and payload.per == "micro-batch":
            yield match["unit"] + (".experts" if match["role"] == "edp" else ""), payload


def _plan(workload: Workload, of: str) -> PrefetchPlan:
    passes = _Passes(workload, of)
    ahead: dict[str, dict[str, list[str]]] = {"F": {}, "B": {}}
    for unit, payload in passes.listed:
        by = passes.starter(payload)
        if unit != ROOT_UNIT and by.partition(".experts")[0] != unit.partition(".experts")[0]:
            ahead[passes.phase(passes.first(payload))].setdefault(by, []).append(unit)
    forward, backward = ({unit: tuple(each) for unit, each in ahead[phase].items()} for phase in ("F", "B"))
    return PrefetchPlan(forward, backward, workload.policy.label)


class _Passes:
    """The tasks of a kind of ranks in their order, and which unit each is of: those behind the first that a gather serves."""

    def __init__(self, workload: Workload, of: str) -> None:
        names = dict.fromkeys(name for name, _ in workload.line(of))
        self.line = [workload.task[name] for name in names if workload.task[name].kind != "CTRL"]
        self.turn = {task.name: at for at, task in enumerate(self.line)}
        if len({task.slot[1] for task in self.line}) > 1:
            raise UsageError(
                f"{of} has several stages: to FSDP2 each is a model of its own", where=workload.name, remedy="vp1"
            )
        served = [each for each in _gathers(workload, of) if self._used(each[1])]
        self.listed = sorted(served, key=lambda each: self.first(each[1]))
        self.policy = workload.policy.label
        own = {self.first(each): unit for unit, each in self.listed if unit != ROOT_UNIT and "experts" not in unit}
        self.units: list[str] = []
        unit, layer = ROOT_UNIT, -1
        for at, task in enumerate(self.line):
            if at in own:
                unit, layer = own[at], task.layer
            self.units.append(unit if task.layer == layer else ROOT_UNIT)

    def _used(self, payload: Payload) -> list[int]:
        return [self.turn[name] for name, distance in payload.consumers if name in self.turn and not distance]

    def first(self, payload: Payload) -> int:
        """Return the turn of the first task that needs what a gather brings."""
        return min(self._used(payload))

    def phase(self, at: int) -> str:
        """Return the direction of the pass of a task."""
        return "F" if self.line[at].slot[0] == "F" else "B"

    def starter(self, payload: Payload) -> str:
        """Return the unit whose pass begins where a gather may begin, or where its direction does if that is later."""
        used = self.first(payload)
        at = max((self.turn[name] for name in payload.producers if name in self.turn), default=-1) + 1
        if self.phase(used) == "B":
            at = next(turn for turn in range(at, len(self.line)) if turn >= used or self.phase(turn) == "B")
        if at > used or self.phase(at) != self.phase(used):
            why = "begins in a pass of the other direction"
        elif at and (self.units[at - 1], self.phase(at - 1)) == (self.units[at], self.phase(at)):
            why = f"begins in the midst of {self.units[at]}"
        else:
            return self.units[at]
        raise UsageError(
            f"{payload.name} {why}: FSDP2 starts gathers where a module's pass begins",
            where=self.policy,
            remedy="gathers that begin with the pass of a layer, as --parallel fsdp and centauri:ahead=4 make them",
        )


# read back


_REMEDY = "compare with what ringwright.formats.settings.fsdp2_prefetch writes"


def read_fsdp2_prefetch(path: Path | str) -> dict[str, PrefetchPlan]:
    """Return the plans of a file by the kind of ranks ("" in Python, which has one); InputError says what is wrong."""
    path = Path(path)
    return parse_fsdp2_prefetch(read_whole(path, "the file of prefetches", _REMEDY), str(path))


def parse_fsdp2_prefetch(text: str, where: str = "prefetch.json") -> dict[str, PrefetchPlan]:
    """Return the plans of a file's text; ``where`` names it in errors."""
    if not text.lstrip().startswith("{"):
        return {"": _of_python(text, where)}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        _fail(f"not JSON: {str(error)[:60]}", where)
    plans = document.get("fsdp2_prefetch")
    if not isinstance(plans, dict) or not plans:
        _fail("an object 'fsdp2_prefetch' with a plan for each kind of ranks should stand here", where)
    return {str(of): _of_json(plan, f"{where}: {str(of)[:40]}") for of, plan in plans.items()}


def _of_json(plan: object, where: str) -> PrefetchPlan:
    if not isinstance(plan, dict):
        _fail("a plan is an object", where)
    return _made(plan.get("forward", {}), plan.get("backward", {}), plan.get("policy", "none"), where)


def _of_python(text: str, where: str) -> PrefetchPlan:
    try:
        tree = ast.parse(text)
        said = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        _fail(f"neither JSON nor Python: {str(error)[:60]}", where)
    if not {"FORWARD", "BACKWARD"} <= set(said):
        _fail("FORWARD and BACKWARD should stand here", where)
    return _made(said["FORWARD"], said["BACKWARD"], said.get("POLICY", "none"), where)


def _made(forward: object, backward: object, policy: object, where: str) -> PrefetchPlan:
    if not isinstance(policy, str):
        _fail("the policy is a text", where)
    try:
        return PrefetchPlan(_lists(forward, where), _lists(backward, where), policy)
    except UsageError as error:
        _fail(error.what, where)


def _lists(ahead: object, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(ahead, dict):
        _fail("the lists of a pass are an object", where)
    for unit, others in ahead.items():
        texts = isinstance(others, list) and all(isinstance(each, str) for each in others)
        if not isinstance(unit, str) or not texts:
            _fail(f"the list of {str(unit)[:40]!r} should be names of units", where)
    return {unit: tuple(others) for unit, others in ahead.items()}


def _fail(what: str, where: str) -> NoReturn:
    raise InputError(f"bad file of prefetches: {what}", where=where, remedy=_REMEDY)
