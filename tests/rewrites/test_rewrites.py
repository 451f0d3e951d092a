"""Kinds of rewrites: each is one file with typed settings, and what it does shows in the operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import KINDS, operations
from ringwright.model.rewrites.kind import carried_by, settings_of
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Policy, Rewrite
from ringwright_lab.contracts.rewrite import SETTINGS as GOOD
from ringwright_lab.contracts.rewrite import shape, step

BAD: dict[str, dict[str, Any]] = {
    "collective": {"op": 7},
    "fuse": {"caps_bytes": ()},
    "groups": {"names": ("g0",)},
    "partition": {"equal": True},
    "parts": {"servers": 0, "above_elements": 100},
    "select": {"share": 2.0, "chunk_elements": 16},
    "substitute": {"names": ("g2",), "batch": 0},
    "threshold": {"size_bytes": "much"},
    "width": {"element_bytes": 0},
}


def test_every_kind_has_a_case_here() -> None:
    assert set(GOOD) == set(BAD) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_changes_what_is_sent_and_loses_no_payload(kind: str) -> None:
    given = step(Rewrite(kind, ("dp",), GOOD[kind]))
    assert shape(given) != shape(step())
    carried = [payload.name for each in operations(given) for payload in each.payloads]
    assert sorted(carried) == ["g0", "g1", "g2"]
    elsewhere = step(Rewrite(kind, ("tp",), GOOD[kind]))
    assert shape(elsewhere) == shape(step()), "a rewrite of another role"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_settings_are_typed(kind: str) -> None:
    for settings in (BAD[kind], {}, {**GOOD[kind], "nonsense": 1}):
        rewrite = Rewrite(kind, ("dp",), settings)
        with pytest.raises(UsageError) as refused:
            settings_of(rewrite)
        assert kind in refused.value.what
        assert refused.value.remedy
        found = check(step(rewrite))
        assert any(kind in str(each) for each in found), settings


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_setting_counts(kind: str) -> None:
    """A field of the settings that no one reads would be decoration."""
    other = {
        "equal": ({"size_bytes": 3000}, {"size_bytes": 3000, "equal": True}),
        "elements": ({"size_bytes": 512}, {"elements": 100}),
    }
    other |= {"op": ({"size_bytes": 512}, {"size_bytes": 512, "op": "broadcast"})} if kind == "partition" else {}
    swaps = {
        "names": (("g1", "g2"),) if kind == "groups" else ("g1",),
        "caps_bytes": (9000,),
        "op": "all-gather",
        "share": 0.25,
        "above_elements": 5000,
    }
    for name in KINDS[kind].Settings.__struct_fields__:
        if name in other:
            before, after = other[name]
        else:
            before = GOOD[kind]
            after = {**before, name: swaps.get(name, before.get(name, 1) * 2)}
        assert shape(step(Rewrite(kind, ("dp",), before))) != shape(step(Rewrite(kind, ("dp",), after))), name


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_says_whether_the_payloads_bytes_travel(kind: str) -> None:
    made = operations(step(Rewrite(kind, ("dp",), GOOD[kind])))
    kept = all(each.size_bytes == sum(payload.size_bytes for payload in each.payloads) for each in made)
    assert kept == KINDS[kind].WHOLE


def test_where_a_kind_is_done_for_real_is_one_of_three_places() -> None:
    assert {place for kind in KINDS.values() for place in kind.CARRIED_BY} == {"live", "hook", "buckets"}
    assert set(carried_by("buckets")) < set(carried_by("hook")) < set(carried_by("live"))


def test_rewrites_are_applied_one_after_another() -> None:
    fused = step(
        Rewrite("threshold", ("dp",), {"size_bytes": 8192}), Rewrite("partition", ("dp",), {"size_bytes": 4096})
    )
    assert [each.pieces for each in operations(fused)] == [2, 1]
    assert (
        len(
            operations(
                replace(fused, policy=Policy(rewrites=fused.policy.rewrites[::-1] if fused.policy.rewrites else ()))
            )
        )
        == 2
    )
