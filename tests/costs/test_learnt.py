"""What is learnt of NCCL's times: one's own tables move the answer, intervals hold, and what is extrapolated says so."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ringwright.costs.learnt import TRANSPORTS, LibraryCall, expected, of_calls, shipped
from ringwright.costs.learnt.call import STEP, usual
from ringwright.costs.learnt.parts import PARTS, scatter_of, scattered, spread, summed
from ringwright.costs.learnt.prior import parsed, written
from ringwright.costs.learnt.table_machine import described, release_of
from ringwright.costs.learnt.trusted import MOST_POINTS, MeasuredCall, thinned
from ringwright.costs.nccl import placed
from ringwright.costs.nccl.constants import releases
from ringwright.costs.nccl.timing import stages
from ringwright.ground.errors import InputError

SIZES = tuple(1 << power for power in range(10, 33, 2))


def call(fabric: str = "dgx-h100:4", op: str = "all-reduce", transport: str = "infiniband", **more: str) -> LibraryCall:
    kind, system = placed(fabric)
    return LibraryCall(op, SIZES, kind, system, "2.20", transport, owner="mine", **more)


def measured(of: LibraryCall, factor: float) -> MeasuredCall:
    return MeasuredCall(of, tuple(factor * each.p50_s for each in expected([of])[0]))


def test_the_answer_is_the_closed_form_times_what_was_learnt() -> None:
    asked = call()
    (said,) = expected([asked])
    machine = np.concatenate([[1.0], usual(asked.kind, asked.transport)])
    for each, size in zip(said, SIZES, strict=True):
        closed = stages(asked.op, size, asked.kind, asked.system, asked.release).time_s(machine)
        assert each.closed_form_s == pytest.approx(closed, rel=1e-9)
        assert each.p05_s < each.p50_s < each.p95_s
        assert each.p95_s / each.p50_s == pytest.approx(each.p50_s / each.p05_s)
        assert 0.1 < each.p50_s / closed < 10


def test_one_table_moves_the_answer_and_makes_it_surer_and_two_more_so() -> None:
    asked = replace(call("dgx-h100:8"), table="asked")
    (plain,) = expected([asked])
    one = measured(call("dgx-h100:4", table="a"), 1.6)
    two = measured(call("dgx-h100:16", table="b"), 1.6)
    (after_one,), (after_two,) = expected([asked], [one]), expected([asked], [one, two])
    for before, once, twice in zip(plain, after_one, after_two, strict=True):
        assert before.p50_s < once.p50_s < twice.p50_s < 1.7 * before.p50_s
        assert before.sigma > once.sigma > twice.sigma > 0
    large = [at for at, size in enumerate(SIZES) if size >= 1 << 26]
    assert np.mean([after_two[at].p50_s / plain[at].p50_s for at in large]) > 1.3


def test_a_table_of_another_system_says_nothing_that_is_its_own() -> None:
    asked = replace(call("dgx-h100:8"), table="asked")
    stranger = measured(replace(call("dgx-h100:4", table="a"), owner="theirs"), 1.6)
    own = measured(call("dgx-h100:4", table="a"), 1.6)
    at = SIZES.index(1 << 30)
    plain, other, mine = (expected([asked], given)[0][at].p50_s for given in ((), (stranger,), (own,)))
    assert abs(math.log(other / plain)) < 0.5 * math.log(mine / plain)


def test_what_nothing_was_learnt_of_is_told() -> None:
    known = shipped().seen["infiniband"]
    assert "all-reduce" in known.operations
    assert expected([call()])[0][4].outside == ()
    huge = replace(call("dgx-h100:4096"), sizes_bytes=(1 << 40,))
    assert {"nodes", "size"} <= set(expected([huge])[0][0].outside)
    odd = replace(call(), release="2.9", transport="efa", op="send-recv")
    assert {"release", "operation"} <= set(expected([odd])[0][0].outside)
    own = measured(replace(call("dgx-h100:4096", table="own"), sizes_bytes=(1 << 20, 1 << 41)), 1.0)
    assert expected([huge], [own])[0][0].outside == ()


def test_a_transport_that_nobody_measured_is_outside_and_wide() -> None:
    unseen = sorted(set(TRANSPORTS) - set(shipped().seen))
    for name in unseen:
        row, seen = expected([call(transport=name)])[0], expected([call()])[0]
        assert row[0].outside == ("transport",)
        assert all(one.sigma >= other.sigma for one, other in zip(row, seen, strict=True))
    assert len(unseen) < len(TRANSPORTS)


def test_how_the_time_follows_each_number_is_that_of_the_closed_form() -> None:
    asked = replace(call(), sizes_bytes=(1 << 12, 1 << 30))
    points = of_calls([asked])
    machine = usual(asked.kind, asked.transport)
    for at, size in enumerate(asked.sizes_bytes):
        made = stages(asked.op, size, asked.kind, asked.system, asked.release)
        for number in range(len(machine)):
            up, down = (
                np.concatenate([[1.0], machine * np.exp(sign * STEP * (np.arange(6) == number))]) for sign in (1, -1)
            )
            assert points.follows[at, number] == pytest.approx(
                math.log(made.time_s(up) / made.time_s(down)) / (2 * STEP), abs=1e-9
            )
    assert points.follows.sum(axis=1) == pytest.approx([1, 1], abs=0.5)  # less what is constant


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_each_part_is_a_covariance_with_its_own_diagonal(part: object) -> None:
    points = of_calls(
        [call(table="a"), call("dgx-h100:1", table="b"), call("polaris:8", "all-gather", "slingshot", table="c")]
    )
    variances = {each.name: 1.0 for each in PARTS}
    matrix = summed([part], variances, points, points)  # type: ignore[list-item]
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), spread([part], variances, points))  # type: ignore[list-item]
    assert np.linalg.eigvalsh(matrix).min() > -1e-8 * max(1.0, matrix.max())
    assert matrix.max() > 0 or "number" in part.name  # type: ignore[attr-defined]


def test_a_prior_is_written_and_read_and_what_is_none_is_refused() -> None:
    prior = shipped()
    again = parsed(written(prior), "here")
    assert again.systems == prior.systems
    assert np.allclose(again.mean, prior.mean, rtol=1e-2, atol=1e-4)
    for damaged in (b"", b"{}", b"[1]", b'{"schema": "ringwright.prior/1"}', written(prior)[:-40]):
        with pytest.raises(InputError):
            parsed(damaged, "here")
    short = written(replace_mean(prior))
    with pytest.raises(InputError, match="other parts or anchors"):
        parsed(short, "here")


def replace_mean(prior: object) -> object:
    import msgspec

    return msgspec.structs.replace(prior, mean=(0.0,))


def test_more_points_than_fit_are_thinned_evenly() -> None:
    assert thinned(5).tolist() == [0, 1, 2, 3, 4]
    many = thinned(3 * MOST_POINTS)
    assert len(many) <= MOST_POINTS
    assert (many[0], many[-1]) == (0, 3 * MOST_POINTS - 1)


FACTS = {
    "gpu": "H100-SXM5-80GB",
    "nodes": "4",
    "gpus_per_node": "8",
    "intra_node": "NVSwitch 4, 450 GB/s a GPU each way",
    "inter_node": "8 x 400 Gb/s NDR InfiniBand a node",
    "software": "NCCL 2.26.2",
    "settings": "",
}


def test_a_described_machine_becomes_a_call() -> None:
    made = described("all-reduce", FACTS, (8, 16))
    assert isinstance(made, LibraryCall)
    assert (made.transport, made.release, made.system.ranks, made.kind.nics, made.kind.nic_gbs) == (
        "infiniband", "2.26", 32, 8, 50.0,
    )  # fmt: off
    mesh = described("all-reduce", {**FACTS, "gpu": "A100", "gpus_per_node": "4", "intra_node": "NVLink3 all-to-all 4 GPUs",
                      "inter_node": "2 x 200 Gb/s Slingshot 11 NICs a node", "settings": "NCCL over TCP"}, (8,))  # fmt: off
    assert isinstance(mesh, LibraryCall)
    assert (mesh.transport, mesh.kind.nvswitch, mesh.kind.nics, mesh.kind.nic_gbs) == ("tcp", False, 2, 25.0)
    domain = described(
        "all-reduce",
        {**FACTS, "gpu": "GB300", "nodes": "16", "gpus_per_node": "4", "intra_node": "NVLink 5 domain"},
        (8,),
    )
    assert isinstance(domain, LibraryCall)
    assert (domain.carrier, domain.system.nodes, domain.system.ranks) == ("nvlink", 1, 64)
    one = described("all-reduce", {**FACTS, "gpus_per_node": "2", "inter_node": "1 x 400 Gb/s RoCE a rank"}, (8,))
    assert isinstance(one, LibraryCall)
    assert (one.transport, one.kind.nics, one.kind.nic_gbs) == ("roce", 2, 50.0)


@pytest.mark.parametrize(("software", "release"), [("NCCL 2.99", releases()[-1]), ("NCCL 2.1", releases()[0])])
def test_a_release_without_a_model_is_answered_by_the_nearest_one(software: str, release: str) -> None:
    made = described("all-reduce", {**FACTS, "software": software}, (8,))
    assert isinstance(made, LibraryCall)
    assert made.release == release


def test_a_machine_that_is_not_known_says_why() -> None:
    for op, facts, reason in (
        ("all-reduce", {**FACTS, "gpu": "Gaudi3"}, "node type of the GPU 'Gaudi3'"),
        ("gather", FACTS, "gather has no closed form"),
        ("all-reduce", {**FACTS, "nodes": ""}, "does not say its nodes"),
        ("all-reduce", {**FACTS, "nodes": "1", "gpus_per_node": "1"}, "one rank alone"),
    ):
        assert reason in str(described(op, facts, (8,)))


def test_releases_as_sources_say_them() -> None:
    said = ("NCCL 2.18", "NCCL 22902", "NCCL (2024-10)", "image of a site", "NCCL 2.23.4, aws-ofi-nccl 1.9.2")
    assert [release_of(each) for each in said] == ["2.18", "2.29", "2.20", "2.20", "2.23"]


def test_few_nodes_over_slingshot_scatter_less_than_many() -> None:
    """Single times have a scatter of their own there, which makes their intervals narrower."""
    few, many = (call(f"polaris:{nodes}", transport="slingshot", table=f"{nodes}") for nodes in (4, 8))
    kinds = [scatter_of(of_calls([each])) for each in (few, many)]
    assert not set(kinds[0]) & set(kinds[1])
    of_each = [scattered(shipped().variances, of_calls([each]))[-1] for each in (few, many)]
    assert of_each[0] < 0.5 * of_each[1]
    assert set(scatter_of(of_calls([call("dgx-h100:4")]))) == set(scatter_of(of_calls([call("dgx-h100:8")])))
