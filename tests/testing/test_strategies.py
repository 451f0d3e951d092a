"""The public strategies, used as an outsider would: whatever is drawn, programs are legal and physics holds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.ground.errors import UsageError
from ringwright.model import interpreter, registry, validity
from ringwright.model.collective import Collective
from ringwright_lab.testing import strategies

BLOCKS = {system.slug: system for system in registry.systems() if system.kind == "block" and not system.fabrics}


@st.composite
def cases(draw: Any) -> tuple[registry.System, Collective]:
    system = BLOCKS[draw(st.sampled_from(sorted(BLOCKS)))]
    return system, draw(strategies.collectives(system.ops, v_forms=True))


@given(cases(), st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_block_on_anything(case: tuple[registry.System, Collective], data: Any) -> None:
    """Legal, right against NumPy, and never below the bounds, whatever engine and latency model."""
    system, collective = case
    topology = data.draw(strategies.topologies(max(collective.group) + 1))
    try:
        program = system.load()(collective, topology)
    except UsageError:
        return  # declined, openly
    assert not validity.check(program)
    given_data = interpreter.inputs(collective)
    for have, want in zip(
        interpreter.run(program, given_data), interpreter.expected(collective, given_data), strict=True
    ):
        assert have.keys() == want.keys()
        assert all((have[block] == want[block]).all() for block in want)
    alpha = data.draw(st.sampled_from(["pipelined", "busy"]))
    engine = data.draw(st.sampled_from(["events", "flows"]))
    least = bound(collective, topology, alpha=alpha).time_s
    assert simulate(program, topology, engine=engine, alpha=alpha).time_s >= least * (1 - 1e-9)
