"""Legal, right on real data, as fast as declared: over ranks, sizes, fabrics and knobs."""

import pytest
from ringwright_template.stride_ring import OPS, stride_ring

import ringwright
from ringwright.ground.errors import UsageError
from ringwright_lab.testing import check_algorithm, failures


def test_it_keeps_the_contract_of_algorithms() -> None:
    outcomes = check_algorithm(stride_ring, OPS, group_sizes=(1, 2, 3, 8), sizes=("zero", "ragged", "even"))
    assert failures(outcomes) == []
    assert sum(len(outcome.passed) for outcome in outcomes) > 50


def test_other_strides_are_right_or_refused() -> None:
    collective = ringwright.Collective("all-gather", range(8), 1 << 20)
    assert ringwright.verify(stride_ring(collective, stride=3)).valid
    with pytest.raises(UsageError):
        stride_ring(collective, stride=2)


def test_it_is_found_by_its_name() -> None:
    assert ringwright.algorithm("stride-ring:stride=3")(ringwright.Collective("all-gather", range(8), 64), None).p == 8
