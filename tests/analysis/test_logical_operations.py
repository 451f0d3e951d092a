"""Calls folded into weighted rows say what the single rows said."""

from __future__ import annotations

import pytest

from reading import small_job
from ringwright.analysis.logical_operations import folded
from ringwright.analysis.summary import summarise
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.nccl_log.reader import read_log
from ringwright_lab.testing import write_log


@pytest.mark.parametrize("release", ["2.18", "2.27"])
def test_folded_calls_are_the_same_operations(tmp_path_factory: pytest.TempPathFactory, release: str) -> None:
    path = tmp_path_factory.mktemp("job") / "job.log"
    path.write_bytes(write_log(small_job(release), release).text)
    trace = read_log(find([str(path)]))
    whole, less = summarise(trace), summarise(folded(trace))
    assert trace.table("events").height > 3 * folded(trace).table("events").height
    for name in ("operations", "coverage", "nic_bytes", "pair_bytes", "errors_total", "by_role"):
        assert less[name] == whole[name], name
