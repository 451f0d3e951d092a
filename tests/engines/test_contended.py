"""Links that can hold an operation up, and those that need not be followed."""

from __future__ import annotations

from ringwright.engines.job.contended import contended


def test_a_link_of_one_queue_is_never_short() -> None:
    rows = [(0, 2, ((7, 1.0, 1.0),)), (2, 1, ((7, 0.4, 1.0),))]
    assert contended(rows, [0, 0, 0]) == [(0, 2, ()), (2, 1, ())]


def test_queues_that_fit_beside_each_other_do_not_share() -> None:
    assert contended([(0, 1, ((7, 0.5, 1.0),)), (1, 1, ((7, 0.5, 1.0),))], [0, 1]) == [(0, 1, ()), (1, 1, ())]
    kept = [(0, 1, ((7, 0.6, 1.0),)), (1, 1, ((7, 0.5, 1.0),))]
    assert contended(kept, [0, 1]) == kept


def test_of_links_that_are_always_used_alike_one_is_left() -> None:
    rows = [
        (0, 1, ((3, 0.9, 1.0), (4, 0.9, 1.0), (5, 0.2, 1.0))),
        (1, 1, ((3, 0.8, 1.0), (4, 0.8, 1.0), (5, 0.9, 1.0))),
    ]
    assert contended(rows, [0, 1]) == [(0, 1, ((3, 0.9, 1.0), (5, 0.2, 1.0))), (1, 1, ((3, 0.8, 1.0), (5, 0.9, 1.0)))]
