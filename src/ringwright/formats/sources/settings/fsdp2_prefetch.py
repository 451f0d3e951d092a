"""The lists of FSDP2's prefetches, as ``exports.fsdp2_prefetch`` writes them: JSON, or the Python that applies them.

Nothing of the Python is run: the constants in front are read from it.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import NoReturn

from ringwright.formats.sources.gate.whole import read_whole
from ringwright.graph.frameworks.prefetch import PrefetchPlan
from ringwright.ground.errors import InputError, UsageError

_REMEDY = "compare with what ringwright.formats.exports.fsdp2_prefetch writes"


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
