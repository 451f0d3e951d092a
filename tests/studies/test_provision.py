"""The least network that keeps a step: each recommendation at its edge, what it rests on, and what cannot be answered."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ringwright.advise.networks import provisioned
from ringwright.advise.provision.buffers import SMALLEST, LeastBuffer, Queued, least_buffer, queued_time, role_bursts
from ringwright.advise.provision.document import ProvisionDocument, ProvisionRow
from ringwright.advise.provision.network import NetworkTiers
from ringwright.advise.provision.optics import headroom
from ringwright.advise.provision.parallel_forms import chosen_form
from ringwright.advise.provision.port_transfers import transfers
from ringwright.advise.provision.prices import read_prices
from ringwright.advise.provision.question import ProvisionSpec, gpus_of, parse_share
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.documents import as_json
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.jobs import model_job, study
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric
from ringwright.model.topology import Topology
from ringwright.model.workload import Workload
from ringwright.workloads.chain import ChainLayer, chain
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once  # whole jobs, many times: with the compiled loops alone

LEAVES = "leaf-spine:4,per_leaf=2"
BESIDE = (LEAVES, "dgx-h100:1")  # the second has eight GPUs, and no network
BOXES = "rail-optimised:2,gpus=2"
IN_CONTRACT = (
    *("workload", "fabric", "fits", "parallel", "step_us", "nics_per_gpu", "nic_gbs", "oversubscription"),
    *("buffer_bytes", "headroom", "bursts"),
)


@cache
def asked(
    *workloads: str, on: tuple[str, ...] = (LEAVES,), within: float = 0.05, prices: str = ""
) -> ProvisionDocument:
    spec = ProvisionSpec(workloads, within, prices=read_prices([prices] if prices else []))
    return provisioned(spec, [fabric(each) for each in on])[0]


def only(document: ProvisionDocument) -> ProvisionRow:
    (row,) = document.rows
    assert row.declined is None
    return row


def simulated_us(model: str, spelled: str, *faults: str) -> float:
    top = fabric(spelled)
    question = GeneratedJobSpec(WorkloadSpec(model, top.n_ranks, f"dp{top.n_ranks}"), "h100")
    return study.answer(model_job.made(question, apply(top, faults)), "pytorch-ddp").step_s * 1e6


# --------------------------------------------------------------------------------------------------------- the promise
def test_the_contract_of_a_row() -> None:
    row = only(asked("resnet-18"))
    assert all(as_json(row)[key] is not None for key in IN_CONTRACT)
    assert row.bursts is not None
    assert row.bursts.size_bytes_p50 is not None
    assert json.loads(json.dumps(as_json(asked("resnet-18"))))["schema"] == "ringwright.provision/1"


# Of these two a campaign asks: the same of a tree, of leaves and of boxes each time.
ALONE = [pytest.param(each, marks=pytest.mark.sampled(0, "*")) for each in ("torus:4x2", "dragonfly:2x2x2")]


@pytest.mark.parametrize("spelled", [LEAVES, "fat-tree:4", BOXES, *ALONE])
def test_the_recommendation_keeps_the_promise_and_one_step_less_breaks_it(spelled: str) -> None:
    row = only(asked("resnet-18", on=(spelled,)))
    assert row.most_us == pytest.approx(1.05 * (row.reference_us or 0))
    assert row.step_us is not None
    assert row.step_us <= (row.most_us or 0)
    assert row.edges
    for edge in row.edges:
        assert edge.step_us is None or edge.step_us > (row.most_us or 0)
        assert not edge.keeps
    assert (row.unlimited_us or 0) <= (row.reference_us or 0) * 1.005


def test_the_recommended_fabric_can_be_typed_and_gives_the_same_step() -> None:
    row = only(asked("resnet-18", within=0.5))
    ratios = set((row.oversubscription or {}).values())
    assert row.nic_gbs is not None
    assert row.nic_gbs < 50
    assert len(ratios) == 1
    spelled = f"{LEAVES},rate={row.nic_gbs}GB/s,oversubscription={ratios.pop()}"
    assert simulated_us("resnet-18", spelled) == pytest.approx(row.step_us, rel=1e-6)
    assert simulated_us("resnet-18", LEAVES) == row.reference_us


def test_a_looser_promise_needs_no_more_network() -> None:
    sizes = [only(asked("resnet-18", within=within)).cable_gbits or 0 for within in (0.05, 0.5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def test_prices_change_what_is_least() -> None:
    """A NIC that costs more than one of twice its rate is not taken, though it would keep the step."""
    plain = only(asked("resnet-18", within=0.5))
    assert plain.cost is None
    assert plain.nic_gbs == 25
    document = asked("resnet-18", within=0.5, prices="nic@200=9000,nic@400=10")
    row = only(document)
    assert row.nic_gbs == 50
    assert row.cost == 4 * 10
    assert row.given is not None
    assert row.given.cost == 4 * 10
    assert any(edge.what == "nic" and edge.keeps for edge in row.edges or ())
    assert any("no price: port, optic" in each for each in document.assumptions)


def test_rates_without_a_price_are_not_chosen() -> None:
    row = only(asked("resnet-18", within=1.0, prices="nic@400=2,nic@100=1"))
    assert (row.nic_gbs or 0) * 8 in (400, 100)
    assert all((edge.value or 50) * 8 in (400, 100) for edge in row.edges or () if edge.what == "nic")


# ---------------------------------------------------------------------------------------------------------- one optic
def test_one_failed_optic_is_simulated_and_what_bears_it_keeps_the_promise() -> None:
    row = only(asked("resnet-18", on=("fat-tree:4",)))
    lost = row.headroom
    assert lost is not None
    assert lost.fault.endswith("rate 50%")
    assert lost.given_us == pytest.approx(simulated_us("resnet-18", "fat-tree:4", lost.fault))
    assert not lost.keeps
    assert lost.step_us > (row.most_us or 0)
    assert lost.nic_gbs is not None
    assert lost.factor == pytest.approx(lost.nic_gbs / (row.nic_gbs or 0))
    if len(set((row.oversubscription or {}).values())) == 1:
        ratio = next(iter((row.oversubscription or {}).values()))
        bearing = f"fat-tree:4,rate={lost.nic_gbs}GB/s,oversubscription={ratio}"
        assert simulated_us("resnet-18", bearing, lost.fault) <= (row.most_us or 0)


def test_the_least_rate_that_bears_a_failed_optic_is_the_first_that_does() -> None:
    """A step of one second at 100 Gb/s on the slowest cable, longer by as much as that is slower."""
    tiers = NetworkTiers(fabric("leaf-spine:4"))
    asked_of: list[float] = []

    def step_s(top: Topology) -> float:
        asked_of.append(float(top.rate.max()))
        return 12.5e9 / float(top.at(0.0).rate[tiers.ports].min())

    plan = replace(tiers.given, nic_rate=12.5e9)
    told = headroom(tiers, plan, 4, 0.6, step_s)
    assert not told.keeps
    assert told.step_us == pytest.approx(2e6)
    assert told.given_us == pytest.approx(0.5e6)
    assert told.nic_gbs == 50.0  # 200 Gb/s at half of it is a second, 400 half of one
    assert told.factor == 4
    assert headroom(tiers, plan, 4, 2.0, step_s).keeps
    assert headroom(tiers, plan, 4, 1e-3, step_s).nic_gbs is None


def test_the_failed_optic_slows_its_cable_and_not_the_bus_behind_the_nic() -> None:
    row = only(asked("resnet-18", on=(BOXES,)))
    assert row.headroom is not None
    faulty = apply(fabric(BOXES), [row.headroom.fault])
    touched = {fault.target for fault in faulty.faults}
    assert len(touched) == 2
    assert {faulty.classes[faulty.link_class[link]] for link in touched} == {"nic"}


# -------------------------------------------------------------------------------------------------- bursts, sensitivity
def test_what_ports_send_is_what_a_ring_sends() -> None:
    top = fabric("switch:8")
    question = GeneratedJobSpec(WorkloadSpec("resnet-18", 8, "dp8"), "h100", {"": "ring"})
    job = model_job.made(question, top)
    result = study.answer(job, "pytorch-ddp")
    sent = transfers(result, on_fabric(top, result.workload, "ring"), NetworkTiers(top))
    gradients = result.account.roles["dp"].size_bytes
    assert len(set(sent.nic.tolist())) == 1  # ranks are alike, one stands for all
    assert sent.size_bytes.sum() == pytest.approx(2 * 7 / 8 * gradients, rel=1e-3)
    assert (sent.end_s >= sent.start_s).all()
    assert sent.start_s.min() >= 0
    assert sent.step_s == result.step_s


@pytest.mark.parametrize(
    ("spelled", "parallel", "sent_over_gradients"),
    [
        ("rail-optimised:2", "tp8,dp2", {"node0/nic0": 1.0}),  # a ring of two sends what there is, by a NIC of its own
        (
            "rail-optimised:2,gpus_per_nic=2",
            "tp8,dp2",
            {"node0/nic0": 2.0, "node0/nic1": 2.0},
        ),  # two groups share a NIC
        ("rail-optimised:2,gpus_per_nic=2", "tp2,dp8", {"node0/nic0": 3.5}),  # both rings leave by the first rail
    ],
)
def test_groups_that_share_a_nic_send_by_it_what_each_sends(
    spelled: str, parallel: str, sent_over_gradients: dict[str, float]
) -> None:
    top = fabric(spelled)
    job = model_job.made(GeneratedJobSpec(WorkloadSpec("llama3-8b", 16, parallel, seq=512), "h100", {"": "ring"}), top)
    result = study.answer(job, "pytorch-ddp")
    sent = transfers(result, job.costs, NetworkTiers(top))
    gradients = result.account.roles["dp"].size_bytes
    by_nic = {
        top.label(int(top.src[nic])): float(sent.size_bytes[sent.nic == nic].sum()) for nic in set(sent.nic.tolist())
    }
    assert {name: size / gradients for name, size in by_nic.items()} == pytest.approx(sent_over_gradients, rel=1e-3)


def test_bursts_grow_with_what_is_sent(workload_row: ProvisionRow) -> None:
    small, large = (row.bursts for row in (workload_row, only(asked("resnet-18"))))
    assert small is not None
    assert large is not None
    assert 0 < small.bytes_per_nic < large.bytes_per_nic
    assert 0 < (small.duty or 0) <= 1
    assert (small.size_bytes_p50 or 0) <= (small.size_bytes_p99 or 0)


def test_links_that_nothing_passes_buy_nothing() -> None:
    row = only(asked("resnet-18", on=(BOXES,)))
    by_links = {each.links: each for each in row.sensitivity or ()}
    assert by_links["spine"].slower == by_links["spine"].faster == 0  # rails change inside the box
    assert by_links["nic"].slower > 0 >= by_links["nic"].faster
    assert [each.slower for each in row.sensitivity or ()] == sorted(
        (each.slower for each in by_links.values()), reverse=True
    )


# ------------------------------------------------------------------------------------------------------------- buffers
@cache
def _buffered(spelled: str, slack: float) -> tuple[LeastBuffer, float]:
    top = fabric(spelled)
    question = GeneratedJobSpec(WorkloadSpec("resnet-18", 8, "dp8"), "h100")
    job = model_job.made(question, top)
    result = study.answer(job, "pytorch-ddp")
    assert isinstance(job.costs, FabricCosts)

    def step_s(factors: object) -> float:
        assert isinstance(factors, dict)
        return study.answer(replace(job, costs=Queued(job.costs, factors)), "pytorch-ddp").step_s

    def job_s(machine: Topology) -> float:
        return study.answer(model_job.made(question, machine), "pytorch-ddp").step_s

    return least_buffer(result, job.costs, result.step_s * (1 + slack), step_s, job_s), result.step_s * 1e6


# Of these two a campaign asks: TCP each time, and buffers of RoCE for a looser promise.
LOSSLESS = [pytest.param(each, 0.03, marks=pytest.mark.sampled(0, "*")) for each in ("roce", "infiniband")]


@pytest.mark.parametrize(("transport", "slack"), [("tcp", 0.002), *LOSSLESS])
def test_the_least_buffer_keeps_the_step_and_half_of_it_does_not(transport: str, slack: float) -> None:
    told, step_us = _buffered(f"leaf-spine:8,per_leaf=4,transport={transport}", slack)
    assert told.buffer_bytes is not None
    assert told.buffer_bytes & (told.buffer_bytes - 1) == 0
    assert told.step_us is not None
    assert step_us <= told.step_us <= (1 + slack) * step_us
    if told.buffer_bytes > 1 << SMALLEST:
        assert told.below is not None
        assert told.below.buffer_bytes == told.buffer_bytes // 2
        assert told.smaller_why or (told.smaller_us or 0) > (1 + slack) * step_us


def test_the_recommended_buffer_can_be_typed() -> None:
    """The step with it, and with half of it, is what ``simulate`` says of the fabric with such buffers."""
    spelled = "leaf-spine:8,per_leaf=4,transport=tcp"
    told, step_us = _buffered(spelled, 0.002)
    assert told.buffer_bytes is not None
    for size, taken in ((told.buffer_bytes, told.step_us), (told.buffer_bytes // 2, told.smaller_us)):
        if taken is not None:
            fault = f"switch * buffer {size}"
            assert simulated_us("resnet-18", spelled, fault) == pytest.approx(taken, rel=1e-9)
    assert (told.step_us or 0) <= 1.002 * step_us


def test_a_looser_promise_needs_no_more_buffer() -> None:
    spelled = "dragonfly:2x2x2,transport=roce"
    tight, loose = (_buffered(spelled, slack)[0].buffer_bytes for slack in (0.01, 1.0))
    assert tight is not None
    assert loose is not None
    assert loose <= tight


def test_smaller_queues_cost_an_exchange_more() -> None:
    top = fabric("leaf-spine:8,per_leaf=4,oversubscription=4,transport=roce")
    job = model_job.made(GeneratedJobSpec(WorkloadSpec("mixtral-8x7b", 8, "dp8,ep8"), "h100"), top)
    assert isinstance(job.costs, FabricCosts)
    bursts = role_bursts(study.answer(job, "pytorch-ddp"), job.costs)
    told = [queued_time(bursts, top, 1 << power) for power in (14, 15, 17)]
    factors = [each.factors["ep"] for each in told]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 2 > factors[-1] > 1
    assert told[0].drops > told[-1].drops == 0 < told[-1].pauses
    assert all(each.factors["dp"] < each.factors["ep"] for each in told)


def test_no_buffer_is_named_where_nothing_leaves_a_host() -> None:
    top = fabric("dgx-h100:2")
    job = model_job.made(GeneratedJobSpec(WorkloadSpec("llama3-8b", 8, "tp8"), "h100"), top)
    result = study.answer(job, "none")
    assert isinstance(job.costs, FabricCosts)
    assert role_bursts(result, job.costs) == ()
    told = least_buffer(result, job.costs, result.step_s, lambda _: result.step_s, lambda _: result.step_s)
    assert told.buffer_bytes is None
    assert "leaves a host" in told.why


def test_large_operations_are_sent_smaller_and_that_is_told() -> None:
    top = fabric("leaf-spine:16,per_leaf=4")
    job = model_job.made(GeneratedJobSpec(WorkloadSpec("bert-large", 16, "dp16"), "h100"), top)
    assert isinstance(job.costs, FabricCosts)
    bursts = role_bursts(study.answer(job, "pytorch-ddp"), job.costs)
    assert {each.role for each in bursts} == {"dp"}
    assert len({each.size_bytes for each in bursts}) == len(bursts) > 1
    assert bursts[0].sent_bytes < bursts[0].size_bytes
    assert not bursts[0].is_whole


def test_queues_lengthen_the_operations_of_their_role_alone() -> None:
    top = fabric(LEAVES)
    job = model_job.made(GeneratedJobSpec(WorkloadSpec("resnet-18", 4, "dp4"), "h100"), top)
    queued = Queued(job.costs, {"dp": 3.0})
    ranks = tuple(range(4))
    (plain,), (longer,), (other,) = (
        costs.stages("all-reduce", 1 << 20, ranks, role)
        for costs, role in ((job.costs, "dp"), (queued, "dp"), (queued, "tp"))
    )
    assert longer.wire_s == pytest.approx(3 * plain.wire_s)
    assert other == plain
    assert queued.places is None or np.array_equal(queued.places, job.costs.places)  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------- forms and what is refused
def test_the_form_that_is_chosen_is_the_fastest_of_those_it_names() -> None:
    top = fabric(LEAVES)
    question = GeneratedJobSpec(WorkloadSpec("gpt3-1.3b", 4), "h100")
    form = chosen_form(question, top, "pytorch-ddp")
    assert not form.refused
    named = form.remarks[0].partition("(")[2].partition(")")[0].split(", ")
    assert form.parallel in named
    times = {}
    for each in named:
        card = replace(question.card, parallel=each, micro_batches=4 * max(1, int(dict(_words(each)).get("pp", 1))))
        held = chosen_form(replace(question, card=card), top, "pytorch-ddp")
        result = study.answer(model_job.made(replace(question, card=card), top), "pytorch-ddp")
        times[each] = result.step_s / held.samples
    assert min(times, key=lambda each: times[each]) == form.parallel


def _words(parallel: str) -> list[tuple[str, str]]:
    return [(word[:2], word[2:]) for word in parallel.split(",") if word[2:].isdigit()]


def test_a_model_that_no_device_holds_is_a_row() -> None:
    large, small = asked("mixtral-8x7b").rows[0], only(asked("resnet-18"))
    assert (large.fits, small.fits) == (False, True)
    assert "no simple form fits 4 GPUs" in (large.too_large or "")
    assert large.nic_gbs is None
    assert large.device_memory_bytes == 80_000_000_000
    assert (large.peak_memory_bytes or 0) > 80e9


def test_a_form_that_is_asked_for_may_be_too_large() -> None:
    spec = ProvisionSpec(["llama3-8b"], model=WorkloadSpec("", parallel="dp4"))
    (row,) = provisioned(spec, [fabric("leaf-spine:4")])[0].rows
    assert row.fits is False
    assert (row.too_large or "").startswith("dp4 needs ")


def test_serving_has_no_pipeline_where_it_fits_without() -> None:
    form = chosen_form(
        GeneratedJobSpec(WorkloadSpec("llama3-8b", 8, mode="decode"), "h100"), fabric("dgx-h100:1"), "none"
    )
    assert "pp" not in form.parallel


def test_fabrics_that_cannot_answer_are_rows_beside_those_that_can() -> None:
    document = asked("resnet-18", on=BESIDE)
    reasons = {row.fabric: row.declined for row in document.rows}
    assert reasons[LEAVES] is None
    assert "no network to size" in (reasons["dgx-h100:1"] or "")
    assert {row.gpus for row in document.rows} == {4, None}
    assert any("4 GPUs on every fabric" in each for each in document.assumptions)


def test_gpus_that_a_fabric_has_not() -> None:
    spec = ProvisionSpec(["resnet-18"], model=WorkloadSpec("", gpus=3))
    small, large = provisioned(spec, [fabric("leaf-spine:2"), fabric("switch:3")])[0].rows
    assert small.declined == "3 ranks do not fit on leaf-spine:2, which has 2"
    assert large.declined is None


@pytest.mark.parametrize(
    ("workloads", "on", "what"),
    [
        ((), (LEAVES,), "no workload is named"),
        (("resnet-18",), (), "no fabric is named"),
        (("resnet-18", "resnet-18"), (LEAVES,), "a workload is named twice"),
        (("resnet-18",), (LEAVES, LEAVES), "a fabric is named twice"),
        (("resnet-18:traning",), (LEAVES,), "'traning' in 'resnet-18:traning' is no mode"),
        (("no-model",), (LEAVES,), "'no-model' is not a model known here"),
        (("./none.log",), (LEAVES,), "neither a model nor a file"),
        (("bert-base:decode",), (LEAVES,), "it does not decode"),
        (("resnet-18",), ("dgx-h100:1",), "no network to size"),
    ],
)
def test_questions_that_cannot_be_asked(workloads: tuple[str, ...], on: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        provisioned(ProvisionSpec(workloads), [fabric(each) for each in on])[0]


@pytest.mark.parametrize("within", [0, -0.1, 2])
def test_shares_that_keep_nothing(within: float) -> None:
    with pytest.raises(UsageError, match="% of the reference") as refused:
        ProvisionSpec(["resnet-18"], within)
    assert "--within 5%" in refused.value.remedy


def test_shares_as_they_are_typed() -> None:
    assert [parse_share(text) for text in ("5%", "0.05", "100%")] == [0.05, 0.05, 1.0]
    for text in ("", "%", "five", "nan", "inf%"):
        with pytest.raises(UsageError, match="is no share"):
            parse_share(text)


def test_how_many_gpus_are_taken() -> None:
    both = [fabric("leaf-spine:4"), fabric("leaf-spine:8")]
    assert gpus_of(both, None)[0] == 4
    assert gpus_of(both, 6) == (6, "")
    assert gpus_of(both[:1], None) == (4, "4 GPUs: all of each fabric")
    with pytest.raises(UsageError, match="--gpus is 0"):
        gpus_of(both, 0)


# ---------------------------------------------------------------------------------------------------------- recordings
def layers() -> Workload:
    """Four layers of 4 MiB each, that compute a tenth of what they send."""
    return chain("toy", [ChainLayer(1e-4, 2e-4, 4 << 20, 4 << 20) for _ in range(4)], ranks=4)


@pytest.fixture(scope="module")
def workload_row(tmp_path_factory: pytest.TempPathFactory) -> ProvisionRow:
    from ringwright.jobs import workload_files

    path = tmp_path_factory.mktemp("workload") / "job.json"
    workload_files.save(layers(), path)
    return only(provisioned(ProvisionSpec([str(path)]), [fabric("leaf-spine:4")])[0])


def test_a_workload_file_is_a_workload(workload_row: ProvisionRow) -> None:
    assert workload_row.gpus == 4
    assert workload_row.fits is True
    assert workload_row.reference_us is not None


def test_a_recording_keeps_its_measured_step(tmp_path: Path) -> None:
    """On the fabric as it is nothing changes; with a smaller one its operations take as much longer as simulated ones do."""
    from ringwright.jobs.job_trace import trace

    top = fabric("switch:4")
    job = study.Job(layers(), on_fabric(top, layers()), folded=False)
    result = study.answer(job, "none")
    trace(job, result).save(tmp_path / "job.trace")
    row = only(provisioned(ProvisionSpec([str(tmp_path / "job.trace")], 0.5), [top])[0])
    assert row.reference_us == pytest.approx(result.step_s * 1e6, rel=0.02)
    assert row.given is not None
    assert (row.nic_gbs or 0) < (row.given.nic_gbs or 0)
    assert row.bursts is not None
    assert row.bursts.count > 0


@needs_shared_data
def test_a_recording_that_sends_nothing_recommends_no_network() -> None:
    """One rank of its communicator was read: what the others send is unknown, and no network is the least for it."""
    files = str(real("foreign/provision_zero"))
    with pytest.raises(InfeasibleError, match="its step takes no time"):
        asked(files, on=("switch:4",))
    rows = asked(files, "resnet-18", on=("switch:2",)).rows
    assert [bool(row.declined) for row in rows] == [True, False]
    assert rows[0].sensitivity is None or not rows[0].sensitivity
