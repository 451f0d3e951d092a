"""The account of overlap as it is read: on terminals of several widths, and on the page."""

from __future__ import annotations

import io
from typing import Any

import pytest

from fixtures_summary import HOSTILE, job_summary
from ringwright.reports import html, layout, timed_tables
from ringwright.reports.completion import complete

SWITCH = "torch._inductor.config._micro_pipeline_tp = True"


def a_fusion(layer: str, fired: int, missed: int, **more: Any) -> dict[str, Any]:
    known = {"pattern": "all-gather-matmul", "layer": layer, "group": "3 mesh_tp", "expected": fired + missed}
    known |= {"fired": fired, "missed": missed, "comm_us": 9.0, "evidence": [], "rewrite": "loop-gather"}
    known |= {"system": "collective-einsum-overlap", "memory": "a buffer", "switch": SWITCH}
    return known | {"gain_us": [0.0, 500.0] if missed else None, "why": "the pair is there" if missed else ""} | more


def an_exposed(**more: Any) -> dict[str, Any]:
    known = {"group": "0 default_pg", "op": "all-reduce", "phase": "backward", "layer": "", "cause": "dependency"}
    known |= {"exposed_us": 700.0, "count": 3, "gain_us": None, "rewrite": "cut", "memory": "little"}
    return known | {"system": "dear", "switch": "--overlap-param-gather"} | more


def view(**more: Any) -> dict[str, Any]:
    account = {
        "ranks": [],
        "operations": [],
        "audit": [],
        "fusions": [a_fusion("layers.0", 2, 0), a_fusion("layers.1", 0, 2), a_fusion("layers.2", 1, 1)],
        "exposed": [an_exposed(), an_exposed(cause="same-stream", system="", switch="")],
        "apart": [{"cause": "same-stream", "what": "stream 7", "exposed_us": 1.2e4, "count": 1}],
        "environment": [{"name": "CUDA_LAUNCH_BLOCKING", "value": "1", "note": "each launch waits"}],
        "unknown": ["cannot tell: no launch names its layer"],
    }
    return {**job_summary(), "exposed_us": 900.0, "overlapped_us": 100.0, "overlap": account | more}


def written(summary: dict[str, Any], width: int = 200) -> str:
    out = io.StringIO()
    timed_tables.write(layout.console(out, width=width), complete(summary))
    return out.getvalue()


def test_layers_are_summed_by_pattern() -> None:
    text = written(view())
    line = "all-gather-matmul of 3 mesh_tp: 3 of 6 fired, not in layers.1, layers.2: the pair is there"
    assert line in text
    assert f"to have it: collective-einsum-overlap; {SWITCH}; gain at most 1,000.0 us" in text
    assert "kept apart by stream 7: 12.0 ms exposed, same-stream, once" in text
    assert "all-reduce of 0 default_pg, backward, 700.0 us exposed; to cut it: dear; --overlap-param-gather" in text
    assert "cannot tell: no launch names its layer" in text


def test_whatever_fired_has_no_remedy() -> None:
    text = written(view(fusions=[a_fusion("", 4, 0)]))
    assert "all-gather-matmul: 4 of 4 fired\n" in text
    assert "to have it" not in text


@pytest.mark.parametrize("width", [40, 200])
def test_lines_keep_the_width(width: int) -> None:
    assert max(len(line) for line in written(view(), width).splitlines()) <= width


def test_the_page_holds_both_tables_and_the_notes() -> None:
    page = html.page(view())  # type: ignore[arg-type]
    assert 'id="table-fusions"' in page
    assert 'id="table-exposed"' in page
    assert "Kept apart by stream 7" in page
    assert "CUDA_LAUNCH_BLOCKING=1: each launch waits." in page
    assert "gain not predicted" in page  # of what is exposed without a model


def test_names_of_a_trace_stay_text() -> None:
    fusions = [a_fusion(HOSTILE, 0, 1, group=HOSTILE)]
    page = html.page(view(fusions=fusions, exposed=[an_exposed(group=HOSTILE, layer=HOSTILE)]))  # type: ignore[arg-type]
    assert HOSTILE not in page
