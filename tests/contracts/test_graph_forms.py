"""The forms on which rewriting schedulers are recorded: on at least one of them each of the twelve does something."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from ringwright.model.registry import find, schedulers
from ringwright.model.rewrites import operations
from ringwright_lab.contracts import graph_schedulers
from ringwright_lab.contracts.graph_schedulers import FORMS, OWN, GraphForm, scheduled
from ringwright_lab.judges import graph_ranks

TWELVE = [each.slug for each in schedulers() if each.module.split(".")[2] == "decompose"]
WHERE = {  # the form of all forms on which those without one of their own do something
    **dict.fromkeys(("breadth-first-pp", "centauri", "coconet", "dear", "oases", "ooo-backprop", "t3"), "tp2,sp,dp2"),
    "fold3d": "pp2,vp2,dp2",
}


def form_of(slug: str) -> GraphForm:
    return OWN[slug] if slug in OWN else next(each for each in FORMS if each.parallel == WHERE[slug])


@pytest.mark.parametrize("slug", TWELVE)
def test_each_of_the_twelve_rewrites_a_form_on_which_it_is_recorded(slug: str) -> None:
    form = form_of(slug)
    assert form in graph_schedulers.forms(slug)
    if slug == "lynx":
        pytest.importorskip("scipy")
    after, row = scheduled(find(slug, schedulers), form)
    assert row.is_rewritten, row.why
    assert row.rules == len(after.applied)


@pytest.mark.parametrize("slug", OWN)
def test_a_form_of_its_own_is_needed(slug: str) -> None:
    """Without its knobs and costs nothing fires: they are there for a reason."""
    plain = replace(OWN[slug], knobs={"budget": 3} if slug == "syndicate" else {}, costs=graph_schedulers.LINK)
    _, row = scheduled(find(slug, schedulers), plain)
    assert row.rules == 0
    assert row.pieces == 0 or slug == "multidimensional-scheduling"


def test_a_scheduler_that_does_nothing_is_not_counted_as_one_that_rewrites() -> None:
    _, row = scheduled(find("lynx", schedulers), FORMS[0], lambda workload, costs: workload)
    assert not row.is_rewritten


@pytest.mark.parametrize("slug", TWELVE)
def test_the_record_has_a_form_that_was_rewritten_and_came_out_exact(slug: str) -> None:
    record = json.loads((files("ringwright_lab") / "contracts" / "real_ranks.json").read_text())
    row = record["schedulers"][slug][graph_schedulers.EXECUTOR]
    assert row["wrong"] == 0
    assert row["rewritten"] >= 1
    assert row["exact"] + row["declined"] == len(graph_schedulers.forms(slug))


@pytest.mark.torch
@pytest.mark.once
def test_a_sum_that_the_policy_cuts_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    after, _ = scheduled(find("multidimensional-scheduling", schedulers), OWN["multidimensional-scheduling"])
    cut = next(each for each in operations(after) if each.pieces > 1)
    sent: list[int] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor, group: sent.append(tensor.numel()))
    gloo = graph_ranks._Gloo.__new__(graph_ranks._Gloo)
    gloo.torch, gloo.groups, gloo.pieces = torch, {(0, 1): None}, {}
    held = np.arange(100)
    assert np.array_equal(gloo._sum(cut.payloads[0], held, (0, 1), after), held)
    gloo.cutting(after)
    assert np.array_equal(gloo._sum(cut.payloads[0], held, (0, 1), after), held)
    assert sent[0] == 100
    assert len(sent[1:]) == cut.pieces
    assert sum(sent[1:]) == 100
