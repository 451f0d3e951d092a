"""NCCL's choices on a fabric as environment variables: what knobs force, else what its model takes at any size.

Variables know no sizes: a list narrows the choice of a collective, and NCCL's model still takes the least of what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.calls.rules.nccl import SIZES
from ringwright.costs.nccl import PROTOCOLS, sweep
from ringwright.costs.nccl.constants import release_numbers
from ringwright.costs.nccl.environment import EVERY_OP, PER_OP_FROM, NcclEnvironment
from ringwright.formats.settings.nccl_environment import nccl_environment, nccl_environment_shell
from ringwright.ground.errors import UsageError
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec

EXPORTS = {"nccl-env": "plain", "nccl-env-sh": "shell"}


def plain(question: SimulationSpec, spelling: str) -> bytes:
    """Return the lines for ``docker run --env-file``; ``spelling`` as nccl-2-4@2.27:algorithm=tree:channels=16."""
    return nccl_environment(_environment(question, spelling))


def shell(question: SimulationSpec, spelling: str) -> bytes:
    """Return the lines for a shell."""
    return nccl_environment_shell(_environment(question, spelling))


def _environment(question: SimulationSpec, spelling: str) -> NcclEnvironment:
    slug, _, knobs = algorithm(spelling)
    if slug != "nccl-2-4":
        raise UsageError(f"{slug} is not set by NCCL's variables", remedy="nccl-2-4@2.27:algorithm=tree")
    release = str(knobs.get("release", NEWEST))
    system = system_of(question.collective(0), question.topology)
    taken = [*sweep(question.op, SIZES, system, release)]
    op = question.op if release_numbers(release)[:2] >= PER_OP_FROM else EVERY_OP
    algorithms = [knobs["algorithm"]] if "algorithm" in knobs else [each.algorithm for each in taken]
    protocols = [knobs["protocol"]] if "protocol" in knobs else [each.protocol for each in taken]
    return NcclEnvironment(
        release,
        {op: tuple(dict.fromkeys(algorithms))},
        {op: tuple(dict.fromkeys(protocols))} if set(protocols) != set(PROTOCOLS) else {},
        knobs.get("channels"),
        knobs.get("channels"),
        knobs.get("buffer_bytes"),
    )
