"""Columns of a product within a segment of a model, whose content is unknown but for its products: Domino's second cut."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import ringwright
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.computation import COLUMN
from ringwright.graph.algebra.equality import prove, small
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.oases import oases

LINK = LinkCosts(1e9, ring=True)
SEGMENT, LAST, SENT = "all.F.layer0.dense.2", "all.F.layer0.dense.2.part2", "all.F.layer0.leave.3"
OUTPUT, ATTENTION = "hidden", 2


@cache
def model(parallel: str = "tp2", sequences: int = 1) -> Workload:
    step = ringwright.job("gpt3-125m", gpus=2, parallel=parallel, micro_batches=1, micro_batch_size=sequences)
    return small(step, at_most=4)[0]


@cache
def opened() -> Workload:
    return RULES["open"](model(), SEGMENT)


@pytest.mark.parametrize("parts", [2, [1, 3]])
def test_a_product_at_the_end_of_a_segment_goes_by_columns(parts: int | list[int]) -> None:
    after = RULES["cut"](opened(), LAST, dim=OUTPUT, parts=parts, through=[SENT])
    assert check(after, warnings=False) == []
    proof = prove(model(), after, draws=1)
    assert proof.equal, proof.differing[:3]
    assert len(proof.compared) > 100
    assert replayed(opened(), after.applied[1:]) == after
    whole, *mine = (opened().task[LAST], *(after.task[f"{LAST}.{at}"] for at in (0, 1)))
    assert sum(each.seconds for each in mine) == pytest.approx(whole.seconds + max(whole.work.cuts.values()))  # type: ignore[union-attr]
    assert sum(each.work.flops for each in mine) == pytest.approx(whole.work.flops)  # type: ignore[union-attr]
    sizes = [2, 2] if parts == 2 else parts
    assert [each.work.products[0].n for each in mine] == [768 * size // 4 for size in sizes]  # type: ignore[union-attr]
    rows, share = whole.work.products[0].m, sizes[0] / 4  # type: ignore[union-attr]
    read = whole.work.read_bytes * (rows + share * 768) / (rows + 768)  # type: ignore[union-attr]
    assert mine[0].work.read_bytes == pytest.approx(read, abs=1)  # type: ignore[union-attr]
    sent = [each.size_bytes for each in after.payloads if each.name.startswith(SENT)]
    assert sum(sent) == opened().payload[SENT].size_bytes
    assert all(each.reads == whole.reads for each in mine)


def test_columns_of_columns_are_columns() -> None:
    twice = RULES["cut"](opened(), LAST, dim=OUTPUT, parts=2, through=[SENT])
    twice = RULES["cut"](twice, f"{LAST}.1", dim=OUTPUT, parts=2, through=[f"{SENT}.1"])
    assert [twice.task[f"{LAST}.1.{at}"].work.settings[COLUMN] for at in (0, 1)] == [(OUTPUT, 2, 4), (OUTPUT, 3, 4)]  # type: ignore[union-attr]
    assert prove(model(), twice, draws=1).equal


def test_other_columns_than_those_that_are_sent_make_another_sum() -> None:
    """The proof can fail: two parts that both make the first columns."""
    after = RULES["cut"](opened(), LAST, dim=OUTPUT, parts=2, through=[SENT])

    def first(name: str) -> object:
        task = after.task[name]
        assert task.work is not None
        settings = {**task.work.settings, COLUMN: (OUTPUT, 0, 4)} if name == f"{LAST}.1" else task.work.settings
        return replace(task, work=replace(task.work, settings=settings))

    wrong = replace(after, tasks=tuple(first(each.name) if each.work else each for each in after.tasks))  # type: ignore[misc]
    assert not prove(model(), wrong, draws=1).equal


def test_rows_and_what_is_no_product_are_no_columns() -> None:
    attention = (
        f"{SEGMENT}.part1"  # reads and writes heads, which lie on ranks, and multiplies no matrix that is declared
    )
    for name, dim in ((attention, "columns"), (attention, "heads"), (SEGMENT, OUTPUT)):
        with pytest.raises(RewriteError, match="no cut along"):
            RULES["cut"](model() if name == SEGMENT else opened(), name, dim=dim, parts=2)


def test_a_product_that_reads_what_is_cut_needs_all_of_it() -> None:
    """The next segment's first kernel cannot take half of the hidden dimension while it is made."""
    step = RULES["open"](opened(), "all.dO.layer0.dense.2")
    reads = "all.dO.layer0.dense.2.part2"
    assert any(OUTPUT in dict(step.value[name].dims) for name, _ in step.task[reads].reads)
    after = RULES["cut"](step, reads, dim=OUTPUT, parts=2, through=["all.B.layer0.enter.1"])
    assert prove(model(), after, draws=1).equal  # what it reads is from before, and whole
    with pytest.raises(RewriteError, match="needs all of hidden"):
        RULES["cut"](step, reads, dim=OUTPUT, parts=2, through=["all.B.layer1.enter.1", "all.dO.layer0.dense.4"])


def test_parts_in_columns_are_not_made_small() -> None:
    after = RULES["cut"](opened(), LAST, dim=OUTPUT, parts=2, through=[SENT])
    with pytest.raises(UsageError, match="names sizes of parts"):
        small(after)


@pytest.mark.sampled(1, "parallel")
@pytest.mark.parametrize("parallel", ["tp2", "tp2,sp"])
def test_domino_cuts_every_product_of_a_model_whose_sum_is_sent(parallel: str) -> None:
    before = model(parallel, 2)
    after = oases(before, LINK, form="domino")
    said = " ".join(after.assumptions)
    assert "98 products are cut by columns" in said  # two forward and two backward of twelve layers, logits, by halves
    assert "2 are not cut by columns" in said  # the embedding is no product
    assert check(after, warnings=False) == []
    proof = prove(before, after, draws=1)
    assert proof.equal, proof.differing[:3]
    assert len(proof.compared) >= 150
