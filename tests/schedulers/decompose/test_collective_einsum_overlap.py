"""The looped CollectiveEinsum: every kind of site to the bit, the gate on its inequality, four forms, models, what it declines."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import algebra_cases as cases
import ringwright
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove, small
from ringwright.ground.errors import WorkloadError
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose import _sites
from ringwright.schedulers.decompose.collective_einsum_overlap import collective_einsum_overlap, is_skipped, looped_gain
from ringwright_lab.contracts.small_jobs import layers
from ringwright_lab.papers import claims
from ringwright_lab.papers.figures import collective_einsum_overlap as figures
from ringwright_lab.papers.figures import rows

FORMS = ("windowed", "async-tp", "userbuffers", "tile")
SLOW = LinkCosts(1.0, ring=True)
KINDS = {
    "free": cases.gathered_product,
    "contracting": lambda p: cases.gathered_product(p, how="sum"),
    "batch": lambda p: cases.gathered_product(p, how="batch"),
    "scattered": cases.product_scattered,
    "slices": cases.gathered_slices,
    "kernels": cases.several_kernels,
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("p", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_site_computes_the_same(kind: str, p: int) -> None:
    before = KINDS[kind](p)
    for form in FORMS:
        if form == "userbuffers" and kind in ("scattered", "kernels"):
            continue  # four pieces of blocks of two rows: below
        after = collective_einsum_overlap(before, SLOW, form=form, gate="off", bidirectional=form == "windowed")
        assert after.applied, form
        assert check(after, warnings=False) == []
        proof = prove(before, after, draws=3)
        assert proof.equal, (form, proof.differing)
        assert replayed(before, after.applied) == replace(after, assumptions=before.assumptions)
        for role, sent in totals(before).wire_bytes.items():
            assert totals(after).wire_bytes[role] == pytest.approx(sent)


def test_a_scatter_in_four_pieces_computes_the_same() -> None:
    before = cases.product_scattered(2)
    wide = replace(before, values=tuple(replace(v, dims=tuple((n, 4 * s) for n, s in v.dims)) for v in before.values))
    after = collective_einsum_overlap(wide, SLOW, form="userbuffers", gate="off")
    assert [each.rule for each in after.applied] == ["cut"]
    assert prove(wide, after).equal


def test_the_gate_skips_exactly_on_its_inequality() -> None:
    assert figures.skipped_share() == 0
    assert is_skipped(1.0, 4.0, 1.0, 8)  # 4 + 1 = 5
    assert not is_skipped(1.0, 3.999, 1.0, 8)
    assert is_skipped(1.0, 0.5, 3.0, 8)  # blocks that take three times as long
    assert not is_skipped(1.0, 1e-9, 3.0, 8)  # too short to ask
    assert is_skipped(1.0, 0.1, 1.0, 8, e=1.2)


def test_gains_are_those_of_the_cost_model() -> None:
    assert looped_gain(0.4, 16) == pytest.approx(4 / 3)
    assert looped_gain(1.0, 16) == pytest.approx(16 / 9)
    assert max(looped_gain(r / 100, 16) for r in range(1, 500)) <= 2 / (1 + 2 / 16) + 1e-12


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_loop_never_loses_where_its_gate_takes_it(ranks: int) -> None:
    draw = random.Random(ranks)
    for _ in range(20):
        r = draw.choice((0.05, 0.3, 1.0, 3.0, 9.0)) * draw.uniform(0.8, 1.2)
        step = figures.site(ranks)
        costs = replace(figures.ring(step, r), overhead_s=draw.choice((0.0, 0.01, 0.2)))
        after = collective_einsum_overlap(step, costs)
        assert ends(after, costs) <= ends(step, costs) * (1 + 1e-9)


def ends(step: Workload, costs: LinkCosts) -> int:
    return simulate(step, costs, steps=1).finished(0)


def test_small_operations_are_left_alone() -> None:
    step = figures.site(4)
    after = collective_einsum_overlap(step, figures.ring(step, 0.5), threshold_mib=256)
    assert not after.applied
    assert any("smaller than 256 MiB" in each for each in after.assumptions)


@pytest.fixture(scope="module")
def model() -> Workload:
    return ringwright.job("llama3-8b", gpus=8, parallel="tp8,sp", micro_batches=1)


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("form", FORMS)
def test_a_model_runs_with_every_form_and_says_how_to_switch_it_on(model: Workload, form: str) -> None:
    costs = on_fabric(fabric("dgx-h100:1"), model)
    after = collective_einsum_overlap(model, costs, form=form, gate="off")  # type: ignore[arg-type]
    assert check(after, warnings=False) == []
    said = " ".join(after.assumptions)
    assert {"windowed": "xla_gpu", "async-tp": "_micro_pipeline_tp", "userbuffers": "--tp-comm-overlap"}.get(
        form, "flux"
    ) in said
    ops = {payload.op for payload in after.payloads}
    assert ("copy" in ops) == (form in ("async-tp", "tile"))
    for role, sent in totals(model).wire_bytes.items():
        assert totals(after).wire_bytes[role] == pytest.approx(sent, rel=1e-6)


def test_a_models_outputs_stay_as_they_were() -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=2, parallel="tp2,sp", micro_batches=1))
    for form in ("windowed", "tile"):
        after = collective_einsum_overlap(before, SLOW, form=form, gate="off")  # type: ignore[arg-type]
        assert len(after.applied) > 80
        proof = prove(before, after, draws=1)
        assert proof.equal, proof.differing[:3]


def test_what_another_task_reads_too_stays_gathered_where_the_compiler_would_leave_it(model: Workload) -> None:
    there, _ = _sites.sites(model)
    shared = [each for each in there if each.others]
    assert shared
    costs = on_fabric(fabric("dgx-h100:1"), model)
    after = collective_einsum_overlap(model, costs, gate="off")
    assert {each.payload.name for each in shared} <= {payload.name for payload in after.payloads}
    assert any("another task reads the same gathered value" in each for each in after.assumptions)


def test_the_names_of_tasks_do_not_decide() -> None:
    before = cases.several_kernels(4)
    names = {task.name: f"t{at}" for at, task in enumerate(before.tasks)}
    renamed = replace(
        before,
        tasks=tuple(
            replace(t, name=names[t.name], work=t.work and replace(t.work, settings={"same_as": t.name}))
            for t in before.tasks
        ),
        edges=tuple(replace(e, src=names[e.src], dst=names[e.dst]) for e in before.edges),
        payloads=tuple(
            replace(
                p,
                producers=tuple(names[n] for n in p.producers),
                consumers=tuple((names[n], d) for n, d in p.consumers),
            )
            for p in before.payloads
        ),
    )
    one, other = (collective_einsum_overlap(each, SLOW, gate="off") for each in (before, renamed))
    assert [each.rule for each in one.applied] == [each.rule for each in other.applied]
    assert [each.settings for each in one.applied] == [each.settings for each in other.applied]


@pytest.mark.parametrize(
    "job",
    [layers(random.Random(1)).job(), ringwright.job("llama3-8b", gpus=8, parallel="tp8", micro_batches=1)],
    ids=["chain", "all-reduces"],
)
def test_jobs_without_a_site_are_declined_with_a_remedy(job: Workload) -> None:
    with pytest.raises(WorkloadError, match="no all-gather before a product") as caught:
        collective_einsum_overlap(job, SLOW)
    assert "sp" in str(caught.value.remedy)


def test_without_the_system_every_form_and_prediction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "collective_einsum_overlap", lambda made, *_, **__: made)
    figures.site_gain.cache_clear()
    for row in claims.read(claims.find(["collective-einsum-overlap"])[0])["rows"]:
        if row["kind"] in ("form", "prediction"):
            got = 1.0 if row["measure"] == "async_tp" else getattr(figures, row["measure"])(**row.get("with", {}))
            assert not rows.holds(got, row["claimed"], row["tolerance"]), row["figure"]
    figures.site_gain.cache_clear()
