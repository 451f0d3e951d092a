"""Which receive took what a send sent: by order, in each communicator, and only where both ends are told."""

from __future__ import annotations

import polars as pl

from ringwright.model.message_pairs import message_pairs


def calls(*rows: tuple[str, int | None, int | None, int | None]) -> pl.DataFrame:
    """Return calls (op, communicator, rank in it, peer), numbered as they were made."""
    kinds = {"op": pl.String, "communicator": pl.Int32, "comm_rank": pl.Int32, "peer": pl.Int32}
    return pl.DataFrame(rows, schema=kinds, orient="row").with_row_index("number")


def test_the_nth_send_meets_the_nth_receive() -> None:
    made = calls(
        ("recv", 0, 1, 0),
        ("send", 0, 0, 1),
        ("send", 0, 0, 1),
        ("send", 0, 0, 2),  # nobody receives it
        ("recv", 0, 1, 0),
        ("recv", 0, 1, 0),  # nobody sent it
        ("send", 0, 1, 0),  # the other direction
        ("recv", 0, 0, 1),
    )
    assert message_pairs(made, "number").rows() == [(1, 0), (2, 4), (6, 7)]


def test_communicators_are_apart_and_one_that_is_not_known_is_one() -> None:
    made = calls(("send", 0, 0, 1), ("recv", 1, 1, 0), ("send", None, 0, 1), ("recv", None, 1, 0), ("recv", 0, 1, 0))
    assert message_pairs(made, "number").rows() == [(0, 4), (2, 3)]


def test_who_does_not_tell_both_ends_meets_nobody() -> None:
    made = calls(("send", 0, None, 1), ("recv", 0, 1, 0), ("send", 0, 0, None), ("all-reduce", 0, 0, 1))
    assert message_pairs(made, "number").is_empty()
    assert message_pairs(calls(), "number").is_empty()
