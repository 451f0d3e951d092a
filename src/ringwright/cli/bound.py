"""``ringwright bound``: what no algorithm can beat on this fabric, and the cut that proves it."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.ground.units import parse_size

EVERYWHERE = MachineOptions()


def bound(
    collective: str,
    *,
    machine: MachineOptions = EVERYWHERE,
    size: Annotated[str, Parameter(name=["--size", "-b"])] = "1G",
    root: int = 0,
    exact: bool = False,
    link_model: options.LinkModel = "pipelined",
    arrivals: str | None = None,
    json: options.Json = False,
) -> int:
    """Print the latency and bandwidth bounds of a collective, with and without in-network reduction.

    Parameters
    ----------
    collective
        all-reduce, all-gather, ...
    size
        Bytes, the size column of nccl-tests.
    root
        Place of the root in the group.
    exact
        Search all cuts, which takes seconds on 1,000 ranks; without it, where it takes a fraction of a second.
    arrivals
        When the ranks come, as in simulate: late:3=2ms, normal:20us,seed=1, a list of times, or a recording.
    json
        Print one JSON object instead (schema ringwright.bound/1).

    Examples
    --------
    ringwright bound all-gather --fabric dgx-a100:2 -b 1G
    ringwright bound all-gather --fabric torus:16x16 --fault 'link rank0 rate 50%' --exact
    ringwright bound all-reduce --fabric dgx-h100:2 --arrivals late:3=2ms
    """
    from ringwright.bounds.lower_bounds import UNASKED
    from ringwright.calls import bounds
    from ringwright.costs.link_models import ALPHA_OF, named

    topology = machine.build()
    ranks = group(machine.ranks, topology)
    alpha = ALPHA_OF[named(link_model)]
    result = bounds.bounds(
        collective, topology, parse_size(size), ranks, root, alpha=alpha, exact=exact, arrivals=arrivals
    )
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports.calls import bounded

    asked = ["ringwright", "bound", collective, *machine.words(), "--size", size, "--root", str(root)]
    asked += ["--link-model", result["link_model"], "--exact"]
    bounded.write(result, sys.stdout, command=shlex.join(asked) if result["lowest"]["looser"] == UNASKED else "")
    return 0
