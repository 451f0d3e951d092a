"""Links that a program crosses are those that a run of it has busy."""

from __future__ import annotations

import numpy as np
import pytest

from ringwright.engines.choose import simulate
from ringwright.engines.link_crossings import crossed
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm, systems

FABRICS = ("torus:2x3", "dgx-a100:1,sharp=true")
QUICK = ("forest", "flow-all-to-all")  # of those that search


@pytest.mark.sampled(1, "spelled")
@pytest.mark.once
@pytest.mark.parametrize("spelled", FABRICS)
def test_the_links_that_a_run_has_busy(spelled: str) -> None:
    machine = fabric(spelled)
    seen = 0
    for system in systems():
        if system.problem is not None or not (system.kind in ("block", "published") or system.slug in QUICK):
            continue
        for op in system.ops:
            for group, size in ((tuple(range(machine.n_ranks)), 1 << 18), ((3, 1, 4), 8)):
                try:
                    _, make, knobs = algorithm(system.slug)
                    program = make(Collective(op, group, size, "float32"), machine, **knobs)
                    busy = simulate(program, machine).busy_ps[: machine.n_links + len(machine.groups)]
                except RingwrightError:
                    continue
                assert np.array_equal(crossed(program, machine), busy > 0), (system.slug, op, group, size)
                seen += 1
    assert seen > 60
