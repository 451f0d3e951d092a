"""Numbers that no machine has are unknown, not a bug of ours; arrays for the compiled loops are checked before they go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.laws.tables import factor_of
from ringwright.sources import read
from ringwright.trace import rows

pytestmark = pytest.mark.once


def kineto(rank: int, **arguments: Any) -> dict[str, Any]:
    said = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "dtype": "Float",
        "Group size": 2,
        "external id": 1,
    }
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "pid": 0,
        "tid": 7,
        "ts": 10,
        "dur": 5,
    }
    return {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}, "schemaVersion": 1, "deviceProperties": [],
        "traceEvents": [kernel | {"args": {"device": 0, "stream": 7, "correlation": 1} | said | arguments}],
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [{"Rank": 2**31}, {"Dst Rank": 2**32}, {"Group size": 2**33}, {"device": 2**31}, {"stream": 2**70}],
    ids=str,
)
def test_a_kineto_number_above_its_type_is_unknown(arguments: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(kineto(2**31, **arguments)))
    assert summarise(read(str(tmp_path / "a.json")))["operations"]


def test_a_number_that_its_column_cannot_hold_is_unknown() -> None:
    frame = rows(
        "events",
        [{"kind": "collective", "rank": 2**31, "nranks": 2}, {"kind": "collective", "rank": 1, "nranks": 2**80}],
    )
    assert frame.select("rank", "nranks").rows() == [(None, 2), (1, None)]


def test_a_law_of_bandwidth_takes_any_whole_number() -> None:
    assert factor_of("all-reduce", 10**400) is None
