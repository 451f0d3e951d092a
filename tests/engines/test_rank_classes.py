"""The division of a mesh into rank classes against a definition that looks at every rank."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringwright.engines.job.rank_classes import rank_classes
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Mesh, RankClass, Task, Workload

AXES = ("tp", "dp", "pp")
pytestmark = pytest.mark.once  # nothing here is compiled


def workload(sizes: tuple[int, ...], by: str | None = None) -> Workload:
    """Return a job without traffic on a mesh; ``by`` gives each place of that axis a class of its own."""
    axes = tuple(zip(AXES, sizes, strict=False))
    if by is None:
        return Workload("mesh", Mesh(axes), (RankClass("all", {}),), (Task("F", "all", "F", 1e-3),))
    classes = tuple(RankClass(f"at{place}", {by: place}) for place in range(dict(axes)[by]))
    return Workload("mesh", Mesh(axes), classes, tuple(Task(f"F{each.name}", each.name, "F", 1e-3) for each in classes))


def lines(sizes: tuple[int, ...]) -> list[list[list[int]]]:
    """Return, for each rank, its group along each axis; the last axis runs fastest."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return [
        [
            [rank + (place - rank // stride % size) * stride for place in range(size)]
            for stride, size in zip(strides, sizes, strict=True)
        ]
        for rank in range(math.prod(sizes))
    ]


def divided(sizes: tuple[int, ...], first: list[object]) -> list[int]:
    """Return the class of each rank by the definition: refined until equal ranks have groups that are equal by class."""
    groups, label = lines(sizes), first
    while True:
        seen = [
            (
                label[rank],
                *(tuple(sorted(Counter(label[other] for other in group).items(), key=repr)) for group in groups[rank]),
            )
            for rank in range(len(label))
        ]
        numbers: dict[object, int] = {}
        finer = [numbers.setdefault(each, len(numbers)) for each in seen]
        if len(numbers) == len(set(label)):
            return finer
        label = list(finer)


@settings(max_examples=60)
@given(st.data())
def test_classes_are_those_of_the_definition(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), "sizes"))
    by = data.draw(st.sampled_from([None, *AXES[: len(sizes)]]), "classes by")
    ranks = range(math.prod(sizes))
    slow = data.draw(st.dictionaries(st.sampled_from(ranks), st.sampled_from([1.5, 2.0]), max_size=3), "slow ranks")
    marked = data.draw(st.lists(st.sampled_from(ranks), max_size=2, unique=True), "marked ranks")
    place = [rank // math.prod(sizes[AXES.index(by) + 1 :]) % sizes[AXES.index(by)] if by else 0 for rank in ranks]
    alone = {rank: number + 1 for number, rank in enumerate(marked)}
    wanted = divided(sizes, [(place[rank], slow.get(rank, 1.0), alone.get(rank, 0)) for rank in ranks])
    got = rank_classes(workload(sizes, by), slow, marked=marked)
    assert got.class_of.tolist() == wanted
    assert list(got.counts) == [wanted.count(number) for number in range(max(wanted) + 1)]
    assert list(got.ranks) == [wanted.index(number) for number in range(max(wanted) + 1)]
    assert list(got.slowdowns) == [slow.get(rank, 1.0) for rank in got.ranks]


def test_a_slow_rank_splits_its_row_and_its_column() -> None:
    got = rank_classes(workload((2, 4)), {3: 2.0})
    assert got.class_of.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]


def test_unfolded_every_rank_is_a_class() -> None:
    got = rank_classes(workload((2, 3)), folded=False)
    assert (got.class_of.tolist(), got.counts) == (list(range(6)), (1,) * 6)


@pytest.mark.parametrize("rank", [-1, 6])
def test_a_slow_rank_beyond_the_job_is_refused(rank: int) -> None:
    with pytest.raises(UsageError, match=f"rank {rank} is not in the job"):
        rank_classes(workload((2, 3)), {rank: 2.0})


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ((RankClass("a", {"tp": 0}),), "rank 3 is of no class"),
        ((RankClass("a", {}), RankClass("b", {"tp": 1})), "rank 3 is of class a and of b"),
        ((RankClass("a", {"sp": 0}),), "class a is placed on an axis 'sp'"),
    ],
)
def test_ranks_of_no_class_or_two_are_refused(classes: tuple[RankClass, ...], words: str) -> None:
    job = Workload("mesh", Mesh((("tp", 2), ("dp", 3))), classes, ())
    with pytest.raises(UsageError, match=words):
        rank_classes(job)


def test_every_order_of_the_axes_is_met() -> None:
    """Lines along one axis must not be taken for those along another: meshes that are not square tell them apart."""
    for sizes in itertools.permutations((2, 3, 4)):
        for rank in range(24):
            wanted = divided(sizes, [other == rank for other in range(24)])
            assert rank_classes(workload(sizes), {rank: 3.0}).class_of.tolist() == wanted
