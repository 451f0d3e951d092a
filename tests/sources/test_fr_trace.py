"""What PyTorch's analyser of Flight Recorder dumps prints: who is missing or differs, judged by all ranks of the group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError

BLOCK = """\
{head}
internal record id: 53
group info: 3:TENSOR_MODEL_PARALLEL_GROUP
collective: nccl:_all_gather_base
{missing}input sizes: [[2048, 1024]]
output sizes: [[8192, 1024]]
world size: 4
expected ranks: {{8, 9, 10, 11}}
collective state: started
{error}collective stack trace:

"""
STATE = "Culprit rank {}; Error type: COLLECTIVE_STATE_MISMATCH, Expected state: 'started' does not match found state: 'scheduled'"
TYPE = (
    "Culprit rank {}; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: '_all_gather_base' does not match found "
    "collective type: 'broadcast'"
)
SIZE = "Culprit rank {}; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[16]]' does not match found input sizes: '[[8]]'"
DTYPE = (
    "Culprit rank {}; Error type: COLLECTIVE_DTYPE_MISMATCH, Expected dtypes: '{{'Float'}}' does not match found dtype: "
    "'{{'Float'}}/{{'BFloat16'}}/{{'BFloat16'}}'"
)


def missing(sequence: int, ranks: str) -> str:
    head = f"Not all ranks joining collective, sequence number: {sequence}"
    return BLOCK.format(head=head, missing=f"missing ranks: {ranks}\n", error="")


def errors(sequence: int, *said: str) -> str:
    head = f"Collective sequence number: {sequence} has errors"
    return BLOCK.format(head=head, missing="", error=f"error msg: {', '.join(said)}\n")


ALL = (
    missing(43, "{8}")
    + errors(44, TYPE.format(9))
    + "No errors found for this collective entry, There could be other reasons\n"
)
PRINTED = {"fr-trace": ALL}


def summary(folder: Path, text: str) -> Any:
    (folder / "x.txt").write_text(text)
    return summarise(read(folder / "x.txt"))


@pytest.mark.parametrize(
    ("text", "ranks", "kind"),
    [
        (missing(43, "{8}") + missing(44, "{8}"), [8], "hang"),
        (errors(5, STATE.format(9)) + errors(6, TYPE.format(10)), [10], "hang-mismatch"),
        (errors(6, SIZE.format(11)), [11], "hang-mismatch"),
        # the first rank is the odd one, and all others are called culprits
        (errors(6, DTYPE.format(9), DTYPE.format(11), DTYPE.format(10)), [8], "hang-mismatch"),
        (errors(6, TYPE.format(9), TYPE.format(11), TYPE.format(10)), [8], "hang-mismatch"),
        # as older releases print it
        ("Not all ranks joining collective 43 at entry 7" + missing(43, "{9}").partition("43")[2], [9], "hang"),
    ],
)
def test_the_rank_in_the_minority_is_to_blame(text: str, ranks: list[int], kind: str, tmp_path: Path) -> None:
    verdict = summary(tmp_path, text)["verdict"]
    assert (verdict["ranks"], verdict["kind"]) == (ranks, kind)


def test_half_against_half_blames_nobody(tmp_path: Path) -> None:
    assert summary(tmp_path, errors(6, TYPE.format(9), TYPE.format(11)))["verdict"]["ranks"] == []


def test_ranks_that_only_began_later_are_no_cause(tmp_path: Path) -> None:
    told = summary(tmp_path, errors(5, STATE.format(9)))
    assert told["verdict"] is None
    assert {"calls listed": "1: Collective sequence number"}.items() <= {
        claim["field"]: claim["value"] for claim in told["claims"]
    }.items()


def test_the_group_is_named_with_its_role_and_the_world_where_it_is_that(tmp_path: Path) -> None:
    told = summary(tmp_path, missing(43, "{8}"))
    assert [(row["role"], row["size"]) for row in told["communicator_list"]] == [("tp", 4)]
    assert told["ranks_expected"] is None
    assert (
        summary(tmp_path, missing(43, "{8}").replace("3:TENSOR_MODEL_PARALLEL_GROUP", "0:default_pg"))["ranks_expected"]
        == 4
    )


def test_a_dump_that_was_missing_is_said(tmp_path: Path) -> None:
    told = summary(tmp_path, "AssertionError: Missing dump files from ranks {6, 7}\n")
    assert any("no dump of ranks 6, 7" in loss for loss in told["losses"])


def test_words_without_a_call_are_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("Collective 3 has errors in its name\n")
    with pytest.raises(InputError, match="no call"):
        read(tmp_path / "x.txt")
