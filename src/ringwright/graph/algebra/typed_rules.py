"""Rules as people type them: ``cut:at=B.layer3,dim=h,parts=2``, or ``split-all-reduce:role=dp`` at every payload of a role."""

from __future__ import annotations

from typing import Any

from ringwright.graph.algebra import RULES
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload

REMEDY = "RULE:at=NAME, or RULE:role=dp; knobs behind commas, lists as a+b"


def apply_spelled(workload: Workload, spelling: str) -> Workload:
    """Return the Workload with a rule applied as it is spelled; UsageError for a spelling or a place that is none."""
    name, _, rest = spelling.partition(":")
    if name not in RULES:
        raise UsageError(f"no rule is called '{name}'", remedy=f"one of: {', '.join(RULES)}")
    knobs: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value or key in knobs:
            raise UsageError(f"'{part}' is no knob of a rule", where=spelling, remedy=REMEDY)
        knobs[key] = value
    if ("at" in knobs) == ("role" in knobs):
        raise UsageError(f"'{spelling}' does not say where", remedy=REMEDY)
    role = knobs.pop("role", "")
    sites = [knobs.pop("at")] if not role else [each.name for each in workload.payloads if each.role == role]
    if not sites:
        roles = ", ".join(sorted({each.role for each in workload.payloads})) or "none"
        raise UsageError(
            f"{workload.name} has no payload of role '{role}'", where=spelling, remedy=f"roles here: {roles}"
        )
    return RULES[name].everywhere(workload, sites, **{key: _value(value) for key, value in knobs.items()})


def _value(text: str) -> Any:
    """Return what a knob's text says: a number, true or false, a list, or a word."""
    if "+" in text:
        return [_value(each) for each in text.split("+")]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text
