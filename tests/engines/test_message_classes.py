"""Messages of two classes: above what a transport sends eagerly, one between nodes waits for its receiver, in every engine alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.costs.calibration import (
    Calibration,
    LinkClassCosts,
    MeasuredTimes,
    calibrated,
    fit,
    ratio_error,
    times_s,
)
from ringwright.costs.nccl import placed
from ringwright.costs.nccl.timing import stages
from ringwright.costs.transports import NETWORKS, TRANSPORTS
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology

SLINGSHOT = TRANSPORTS["slingshot"]
EAGER, WAIT_S = int(SLINGSHOT.eager_bytes), SLINGSHOT.handshake_s
ONE_CLASS = "infiniband"  # whose tables tell no classes apart
ENGINES = ("events", "recurrence", "flows", "closed-form")


def over(transport: str, nodes: int = 2) -> Topology:
    return fabric(f"polaris:{nodes},transport={transport}")


def waited_s(engine: str, group: list[int], size_bytes: int, nodes: int = 2) -> float:
    """Return by how much longer a ring takes for the classes of its transport."""
    program = ring(Collective("all-gather", group, size_bytes))
    two, one = (simulate(program, over(name, nodes), engine).time_s for name in ("slingshot", ONE_CLASS))
    return two - one


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_above_what_goes_eagerly_waits_for_its_receiver(engine: str) -> None:
    """Two ranks of two nodes exchange a block each: one message."""
    between, within = [0, 4], [0, 1]
    assert waited_s(engine, between, 2 * EAGER) == 0
    assert waited_s(engine, between, 2 * (EAGER + 4)) == pytest.approx(WAIT_S, abs=1e-12)
    assert waited_s(engine, within, 2 * (EAGER + 4)) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_each_message_of_the_path_waits(engine: str) -> None:
    group = [0, 4, 8, 12]
    assert waited_s(engine, group, 4 << 20, nodes=4) == pytest.approx(3 * WAIT_S, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_bytes_are_never_faster(engine: str) -> None:
    top = over("slingshot", 4)
    sizes = [*range(16 * EAGER - 640, 16 * EAGER + 641, 64)]
    times = [simulate(ring(Collective("all-reduce", range(16), size)), top, engine).time_s for size in sizes]
    assert times == sorted(times)
    assert times[-1] > times[0] + 2 * WAIT_S


def test_what_is_folded_waits_as_the_whole_does() -> None:
    top = over("slingshot", 4)
    program = ring(Collective("all-reduce", range(16), 16 << 20))
    assert simulate(program, top).time_ps == simulate(program, top, fold_symmetry=False).time_ps


def test_the_librarys_closed_form_waits_on_the_path_of_a_chunk() -> None:
    kind, system = placed("polaris:4")
    machine = np.array([1.0, 1e-6, 0.0, 0.0, 5e-6, 0.0, 0.0])
    for op, messages in (("all-gather", 3), ("all-to-all", 1), ("send-recv", 1)):
        two, one = (
            stages(op, 1 << 20, kind, system, "2.18", transport=name).time_s(machine)
            for name in ("slingshot", ONE_CLASS)
        )
        assert two - one == pytest.approx(messages * WAIT_S, rel=1e-6), op


def test_a_fit_and_what_it_is_put_on_have_the_same_classes() -> None:
    """A table made with two classes is met by a fit over its transport, and the fabric keeps them."""
    truth = Calibration(
        "", "polaris:4", "2.18", LinkClassCosts(1e-6, 1e-7, 2e11), LinkClassCosts(6e-6, 1e-6, 4e10), "", ""
    )
    sizes = tuple(1 << power for power in range(10, 30))
    asked = MeasuredTimes("all-reduce", truth.fabric, truth.release, sizes, (1.0,) * len(sizes))
    measured = dataclasses.replace(asked, times_s=tuple(times_s(truth, asked).tolist()))
    fits = {name: fit([measured], transport=name) for name in ("", "tcp")}
    errors = {name: ratio_error(times_s(each, measured), measured.times_s) for name, each in fits.items()}
    assert truth.carrier == "slingshot"  # what the product comes with
    assert errors[""] < 0.5 * errors["tcp"]
    assert calibrated(fabric("dgx-a100:2"), truth).transport == "slingshot"
    over_tcp = dataclasses.replace(fabric("polaris:4"), transport="tcp")
    named = fit([measured], transport="4 x Slingshot 11")
    assert calibrated(over_tcp, named).transport == "slingshot"


def test_nccls_program_is_as_much_longer_as_its_messages_wait() -> None:
    """Over eight nodes a chunk passes the network seven times; the bytes are few."""
    times = []
    for name in ("slingshot", ONE_CLASS):
        top = over(name, 8)
        program = nccl_2_4(Collective("all-gather", range(32), 1 << 20), top, release="2.18", protocol="simple")
        times.append(simulate(program, top, "events").time_s)
    assert times[0] >= times[1] + 7 * WAIT_S * 0.99


def test_where_tables_tell_no_classes_apart_there_is_one() -> None:
    known = {name for name in NETWORKS if TRANSPORTS[name].handshake_s}
    assert known == {"slingshot"}
    assert all(TRANSPORTS[name].waits_s(1 << 40) == 0 for name in NETWORKS if name not in known)
