"""Every system over small fabrics and awkward sizes; ``scripts/conformance`` runs all of it, this a seeded part."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model import registry, validity
from ringwright.model.collective import Collective
from ringwright_lab.contracts import algorithm as conformance
from ringwright_lab.contracts import conformance as public

pytestmark = pytest.mark.once

SEED = 7
MOST_SEARCHES, MOST_CASES = 6, 60
GROUP_SIZES = (1, 2, 3, 5, 6, 8, 12, 17)
SYSTEMS = registry.systems()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.slug)
def test_conformance(system: registry.System) -> None:
    cases = list(conformance.pairwise([system], SEED, GROUP_SIZES))
    most = (
        MOST_SEARCHES if system.kind == "synthesis" else MOST_CASES
    )  # there each is a search; which ones, the seed draws
    cases = random.Random(f"{system.slug} {SEED}").sample(cases, min(len(cases), most))
    outcomes = [conformance.check(case) for case in cases]
    failed = [
        f'scripts/conformance --replay "{outcome.case}"   # {name}: {reason}'
        for outcome in outcomes
        for name, reason in outcome.failed.items()
    ]
    assert not failed
    passed = sum(len(outcome.passed) for outcome in outcomes)
    declined = sum(len(outcome.declined) for outcome in outcomes)
    assert passed > declined, "a system that declines most of the checks shows nothing"


def test_every_system_says_what_it_is() -> None:
    for system in SYSTEMS:
        assert set(registry.HEADINGS) <= set(system.headings), system.slug
        assert system.ops, system.slug


def test_the_ten_systems_of_the_survey_are_there() -> None:
    slugs = {system.slug: system.kind for system in SYSTEMS}
    for published in ("ring-allreduce", "imagenet-4-minutes", "torus-2d-allreduce", "blueconnect", "plink", "accl"):
        assert slugs[published] == "published"
    for library in ("open-mpi", "mpich2", "mvapich", "nccl-2-4"):
        assert slugs[library] == "library"


def test_the_suite_is_public() -> None:
    """Outsiders run the same checks on a callable of their own."""
    from ringwright.algorithms.blocks.ring import ring

    outcomes = public.check_algorithm(ring, ops=("all-reduce",), group_sizes=(1, 2, 3, 8))
    assert not [outcome for outcome in outcomes if outcome.failed]
    assert sum(len(outcome.passed) for outcome in outcomes) > 20


def test_a_wrong_algorithm_does_not_pass() -> None:
    import dataclasses

    from ringwright.algorithms.blocks.ring import ring

    def forgetful(collective, topology=None):  # type: ignore[no-untyped-def]
        program = ring(collective, topology)
        steps = list(program.steps())
        return dataclasses.replace(program, make_steps=lambda: steps[:-1], n_steps=max(0, len(steps) - 1))

    outcomes = public.check_algorithm(forgetful, ops=("all-gather",), group_sizes=(3,))
    assert all("legal" in outcome.failed for outcome in outcomes)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.slug)
def test_the_order_of_ranks_is_kept_or_refused(system: registry.System) -> None:
    """A reduction that does not commute gets neighbours in rank order, or a refusal: never a quietly wrong sum."""
    machine = fabric(system.fabrics[0] if system.fabrics and ":" in system.fabrics[0] else "switch:6")
    for op in (op for op in system.ops if op in ("all-reduce", "reduce", "reduce-scatter")):
        try:
            program = system.load()(Collective(op, range(6), 240, commutative=False), machine)
        except UsageError as error:
            assert error.remedy  # noqa: PT017 - declining is one of the two right answers
            continue
        assert not validity.check(program), op


# -------------------------------------------------------------------------------------------------------------- knobs
@pytest.mark.sampled(20)  # of every system: tests/test_knobs.py
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.slug)
def test_conformance_over_knobs(system: registry.System) -> None:
    """Each knob of each system twice, once where each is a search; ``scripts/conformance`` has both ends of all ranges."""
    cases = conformance.few_over_knobs([system], SEED, 1 if system.kind == "synthesis" else 2)
    found = [conformance.check(case) for case in cases]
    assert public.failures(found) == []
    assert {knob.name for knob in system.knobs().values() if knob.can_be_typed} <= {
        outcome.case.knobs.partition("=")[0] for outcome in found
    }


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_closed_form_is_judged_with_several_channels(channels: int) -> None:
    """Two messages to one neighbour on two channels are two: the declared cost is exact, and any other is caught."""
    import dataclasses

    from ringwright.algorithms.blocks.ring import ring
    from ringwright.model.program import Program

    case = conformance.AlgorithmCase("ring", "all-reduce", 4, "even", "full", knobs=f"channels={channels}")
    assert "closed-form" in conformance.check(case).passed

    def boasting(collective: Collective, topology: object = None, *, channels: int = 1) -> Program:
        program = ring(collective, channels=channels)
        (term,) = program.cost.terms
        half = dataclasses.replace(program.cost, terms=(dataclasses.replace(term, size_bytes=term.size_bytes / 2),))
        return dataclasses.replace(program, cost=half)

    why = conformance.examine(case, boasting).failed["closed-form"]
    assert why.startswith("declared 6.")
    assert "measured" in why


def test_a_case_with_knobs_replays_from_its_text() -> None:
    case = conformance.AlgorithmCase("ring", "broadcast", 7, "ragged", "full", 3, "channels=2:segments=4")
    assert conformance.AlgorithmCase.parsed(str(case)) == case
    with pytest.raises(UsageError, match="is not a case"):
        conformance.AlgorithmCase.parsed("ring broadcast knobs=channels=2")


def test_loops_of_a_ring_are_in_its_declared_cost() -> None:
    case = conformance.AlgorithmCase.parsed("ring-allreduce all-reduce p=4 size=even fabric=full root=0 knobs=loops=4")
    assert "closed-form" in conformance.check(case).passed


@pytest.mark.parametrize("segments", [28, 155, 1024])
def test_more_segments_than_a_head_has_elements_send_no_padding(segments: int) -> None:
    for text in (
        "nvls all-reduce p=8 size=more",
        "nvls all-gather p=8 size=bytes",
        "nvls-tree all-reduce p=6 size=bytes",
    ):
        case = conformance.AlgorithmCase.parsed(f"{text} fabric=dgx-h100:1 root=0 knobs=segments={segments}")
        assert not conformance.check(case).failed


def test_a_file_without_a_function_of_its_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence would leave its author without a system, and without a word; what systems share begins with a line."""
    room = tmp_path / "algorithms" / "blocks"
    room.mkdir(parents=True)
    (room / "_shared.py").write_text("def part(): ...\n")
    (room / "shortest_first.py").write_text("def shortest_frist(collective, topology=None): ...\n")
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    with pytest.raises(UsageError, match=r"shortest_first.py has no function 'shortest_first'") as error:
        list(registry._list("algorithms/blocks", ("building-block", "block")))
    assert "_shortest_first.py" in error.value.remedy
    (room / "shortest_first.py").write_text("def shortest_first(collective, topology=None): ...\n")
    assert [each.slug for each in registry._list("algorithms/blocks", ("building-block", "block"))] == [
        "shortest-first"
    ]
