"""The command that shows whether a change did what was said of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ringwright.advise.layers.nccl import forced_environment
from ringwright.advise.software import job_command
from ringwright.formats.settings.nccl_environment import variables

if TYPE_CHECKING:
    from ringwright.advise.settings import Setup
    from ringwright.advise.situation import Situation

BEFORE, AFTER = "before", "after"


def measure_of(situation: Situation, after: Setup, recording: str) -> str:
    """Return it: the job recorded with all that is changed so far, and held against the recording, or a run without.

    ``recording`` is how the recording is named on a command line. What NCCL's variables say stands in the command; any other
    change is made before it runs.
    """
    told = forced_environment(after)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables(told)] if told is not None else []
    job = job_command(situation.trace)
    changed = " ".join([*words, f"ringwright run -o {AFTER} -- {job}"])
    if situation.trace is None:
        return f"ringwright run -o {BEFORE} -- {job}; {changed}; ringwright diff {BEFORE} {AFTER}"
    return f"{changed}; ringwright diff {recording} {AFTER}"
