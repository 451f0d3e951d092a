"""Legal, right on real data, and as fast as declared: over ranks, sizes and fabrics."""

import pytest
from ringwright_template.stride_ring import OPS, stride_ring

import ringwright
from ringwright.errors import UsageError
from ringwright.testing.conformance import check_algorithm


def test_it_shows_what_every_algorithm_must() -> None:
    outcomes = check_algorithm(stride_ring, OPS, group_sizes=(1, 2, 3, 8), sizes=("zero", "ragged", "even"))
    assert sum(len(outcome.passed) for outcome in outcomes) > 50
    assert not [(str(outcome.case), outcome.failed) for outcome in outcomes if outcome.failed]


def test_other_strides_are_right_or_refused() -> None:
    collective = ringwright.Collective("all-gather", range(8), 1 << 20)
    assert ringwright.verify(stride_ring(collective, stride=3)).valid
    with pytest.raises(UsageError):
        stride_ring(collective, stride=2)


def test_it_is_found_by_its_name() -> None:
    assert ringwright.algorithm("stride-ring:stride=3")(ringwright.Collective("all-gather", range(8), 64), None).p == 8
