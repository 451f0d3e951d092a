"""One job, two sources: what the recorder and PyTorch's profiler say of the same calls is the same, cell by cell."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from shared_data import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]
RESULT = REPOSITORY / "benchmarks" / "two-sources.json"


@pytest.mark.parametrize("job", ["ddp", "fsdp2-tensor", "pipeline-interleaved"])
def test_two_sources_agree(job: str, tmp_path: Path) -> None:
    from two_sources import CELLS, compared

    told = compared(job, tmp_path)
    assert told["differences"] == []
    assert told["equal"]["calls"] == sum(told["operations"].values()) > 0
    unsaid = sum(count for name, count in told["alone"].items() if not name.startswith("roles"))
    assert sum(told["equal"].get(cell, 0) for cell in CELLS) + unsaid == told["equal"]["calls"] * len(CELLS)
    assert unsaid * 5 < told["equal"]["calls"] * len(CELLS)


def test_the_last_result_has_no_difference() -> None:
    document: dict[str, Any] = json.loads(RESULT.read_text())
    assert {"ddp", "fsdp2", "tensor-parallel", "pipeline-1f1b"} <= {row["job"] for row in document["jobs"]}
    assert [row["differences"] for row in document["jobs"]] == [[]] * len(document["jobs"])
