"""What is predicted for rounds in the laboratory: competing flows, and what cannot be followed."""

from __future__ import annotations

import pytest

from ringwright.fabrics import fabric
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright_lab.bench import by_packets
from ringwright_lab.network import script, spec

STAR = by_packets.of_lab(fabric("switch:4,rate=20Mb/s"), "reno")
_, _ring, _KNOBS = algorithm("ring")
PROGRAM = _ring(Collective("all-reduce", range(4), 1 << 18), STAR, **_KNOBS)


def flows(line: str) -> tuple[script.Flow, ...]:
    return script.read(spec.read(STAR), [line], horizon_s=10.0, seed=0).flows


def test_a_flow_takes_its_part_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_packets, "SEEDS", 3)
    alone = by_packets.rounds_s(PROGRAM, STAR, 2)
    beside = by_packets.flow_programs(flows("flow 1>3"), PROGRAM, STAR, 2)
    (one,) = beside
    assert (one.collective.op, tuple(one.collective.group)) == ("broadcast", (1, 3))
    times = by_packets.rounds_s(PROGRAM, STAR, 2, beside)
    assert times.shape == alone.shape == (3, 2)
    assert (times > 1.15 * alone.max()).all()
    assert (times < 4.0 * alone.max()).all()


def test_a_flow_lasts_as_long_as_the_rounds() -> None:
    short, long = (by_packets.flow_programs(flows("flow 1>3"), PROGRAM, STAR, rounds)[0] for rounds in (1, 9))
    assert long.collective.size_bytes == pytest.approx(5 * short.collective.size_bytes, rel=0.3)


@pytest.mark.parametrize("line", ["flow 1>3 8Mb/s", "flow 1>3 at 2s", "flow 1>3 for 1s"])
def test_a_flow_with_a_will_of_its_own_is_not_predicted(line: str) -> None:
    with pytest.raises(DeclinedError, match="flows that last") as raised:
        by_packets.flow_programs(flows(line), PROGRAM, STAR, 2)
    assert (raised.value.where, raised.value.remedy) == (f"fault '{line}'", "flow 1>3")


def test_congestion_is_flows_too() -> None:
    asked = flows("congestion from all-gather 64MiB on 0-3")
    assert len(by_packets.flow_programs(asked, PROGRAM, STAR, 2)) == 4
