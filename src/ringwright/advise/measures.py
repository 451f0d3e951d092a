"""The command that shows whether a change did what was said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.advise.settings import Setting

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

AFTER = "after"


def measure_of(situation: Situation, settings: Sequence[Setting], command: str) -> str:
    """Return it: of a recording, the job recorded once more and both held against each other."""
    if situation.trace is None:
        return "ringwright run -o before -- COMMAND; the same with the change, -o after; ringwright diff before after"
    variables = " ".join(_variables(each) for each in settings if each.layer == "nccl")
    prefix = f"{variables} " if variables else ""
    return f"{prefix}ringwright run -o {AFTER} -- COMMAND; ringwright diff {command} {AFTER}"


def _variables(setting: Setting) -> str:
    """Return the environment of a forced choice of NCCL."""
    return setting.where.removeprefix("environment: ").partition(";")[0]
