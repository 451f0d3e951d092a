"""No answer of a cost model changes unseen: NCCL's tables of every release, bounds, stages, and the figures of hardware."""

from __future__ import annotations

import json

import pytest

from recorded_costs import RECORD, digest, groups

pytestmark = pytest.mark.once  # nothing here is compiled
RECORDED: dict[str, str] = json.loads(RECORD.read_text())
KINDS = sorted({name.rpartition(" ")[2] for name in RECORDED})


def test_every_group_is_recorded() -> None:
    assert set(RECORDED) == set(groups())


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_recorded(kind: str) -> None:
    """Where a change is meant: ``python tests/recorded_costs.py``, and the change is told in changes/."""
    asked = {name: question for name, question in groups().items() if name.rpartition(" ")[2] == kind}
    changed = [name for name, question in asked.items() if digest(question) != RECORDED[name]]
    assert not changed, f"other answers than recorded; python tests/recorded_costs.py {changed[0]!r} prints them"
