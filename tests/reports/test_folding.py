"""Tables and lines at every width: nothing is cut, a number stands whole, and the width asked for is kept."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_summary import changed_summary, job_summary
from ringwright.analysis.compared import diff
from ringwright.calls.simulated_document import SimulatedCalls
from ringwright.cli import main
from ringwright.ground.documents import read_json
from ringwright.reports import changes, folding, layout, terminal
from ringwright.reports.calls import simulated
from ringwright_lab.reports import benched

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTHS = (40, 60, 80, 120, 200)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
EIGHT = "ring,nccl-2-4,open-mpi,mpich2,mvapich,binary-tree,recursive-doubling,blueconnect"


def numbers(text: str) -> Counter[str]:
    return Counter(NUMBER.findall(text))


def drawn(write: Callable[[Any], None], names: str = "") -> str:
    """Return what is written, without some names: narrow tables have letters in their place."""
    file = io.StringIO()
    write(file)
    text = file.getvalue()
    for name in filter(None, names.split(",")):
        text = text.replace(name, "")
    return text


def at_each_width(write: Callable[[Any, int], None], names: str = "") -> None:
    """Whatever a report says on a line without end it says at each width, number by number."""
    whole = numbers(drawn(lambda file: write(file, 5000), names))
    for width in WIDTHS:
        text = drawn(lambda file, width=width: write(file, width), names)  # type: ignore[misc]
        assert not whole - numbers(text), f"at {width} columns: {whole - numbers(text)}"


cells = st.one_of(
    st.integers(-(10**15), 10**15).map(lambda n: f"{n:,}"),
    st.integers(0, 10**15).map(str),
    st.floats(0, 1e9).map(lambda x: f"{x:,.2f}*"),
    st.sampled_from(["-", "16 MiB", "<0.1 %", "node0/nic0 > leaf12", "1.5e-07", "日本 1234567"]),
)


@given(
    st.integers(1, 9).flatmap(lambda n: st.lists(st.tuples(*[cells] * n), min_size=1, max_size=4)),
    st.sampled_from((20, *WIDTHS)),
    st.sets(st.integers(0, 8)),
)
@settings(max_examples=100, deadline=None)
def test_no_cell_of_any_table_is_cut(rows: list[tuple[str, ...]], width: int, text_columns: set[int]) -> None:
    names = [f"column {chr(97 + at)} us" for at in range(len(rows[0]))]
    left = [name for at, name in enumerate(names) if at in text_columns]
    text = drawn(lambda file: layout.table(layout.console(file, width=width), names, rows, left=left))
    shown = numbers(text)
    assert not Counter(n for row in rows for cell in row for n in NUMBER.findall(cell)) - shown
    for at, name in enumerate(names):
        if name not in left:  # a number column is not folded at all
            assert all(row[at] in text for row in rows)
    widest = max(folding.width(cell) for row in rows for cell in row)
    assert all(folding.width(line) <= max(width, 2 * max(widest, 6) + 6) for line in text.splitlines())


@given(st.text(st.sampled_from("ab/ ,.-_=0123456789"), max_size=200), st.integers(8, 60))
@settings(max_examples=100, deadline=None)
def test_a_line_folds_without_losing_anything(text: str, columns: int) -> None:
    lines = folding.wrap(text, columns)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert (
        not Counter(folding._PIECES.findall(text.replace(" ", "")))
        - Counter(piece for line in lines for piece in folding._PIECES.findall(line.replace(" ", "")))
        or " " in text
    )
    for line in lines:
        assert len(line) <= columns or len(max(folding._PIECES.findall(line), key=len)) >= columns or " " not in line


def test_rows_that_only_several_columns_tell_apart_repeat_them_in_each_block() -> None:
    rows = [("16 MiB", count, "all-reduce", "ring", "simple", 4) for count in (1, 319)]
    columns = ("size", "count", "op", "algorithm", "protocol", "channels")
    text = drawn(
        lambda file: layout.table(layout.console(file, width=40), columns, rows, left=("op", "algorithm", "protocol"))
    )
    assert text.count("16 MiB    319") == 2


# ------------------------------------------------------------------------------------------------------ whole reports
def test_a_summary_and_a_difference_say_the_same_numbers_at_every_width() -> None:
    at_each_width(lambda file, width: terminal.write(job_summary(), file, width=width))
    found = diff.diff(job_summary(), changed_summary())
    at_each_width(lambda file, width: changes.write(found, file, width=width))


@pytest.fixture(scope="module")
def eight() -> dict[str, Any]:
    import contextlib

    told = io.StringIO()
    asked = [
        "simulate",
        "all-reduce",
        "--fabric",
        "dgx-h100:2",
        "-b",
        "1K",
        "-e",
        "1G",
        "-f",
        "1048576",
        "--algorithm",
        EIGHT,
    ]
    with contextlib.redirect_stdout(told):
        assert main([*asked, "--json"]) == 0
    return dict(json.loads(told.getvalue()))


def test_eight_algorithms_stand_whole_at_every_width(eight: dict[str, Any]) -> None:
    at_each_width(lambda file, width: simulated.write(read_json(SimulatedCalls, eight), file, width=width), EIGHT)
    for width in WIDTHS:
        shown = numbers(
            drawn(lambda file, width=width: simulated.write(read_json(SimulatedCalls, eight), file, width=width))
        )  # type: ignore[misc]
        assert not Counter(simulated.time(row["time_us"]) for row in eight["rows"]) - shown


def test_a_benchmark_on_counted_interfaces_shows_its_sizes_whole() -> None:
    row = {
        "backend": "tcp",
        "algorithm": "ring",
        "size_bytes": 1048576,
        "count": 262144,
        "dtype": "float32",
        "time_us": 42616.0,
        "algbw_gbs": 0.0246,
        "busbw_gbs": 0.0431,
        "wrong": 0,
        "predicted_us": 50331.0,
        "sent_bytes": 1903456,
        "least_port_bytes": 1903456,
        "most_port_bytes": 1903456,
    }
    result = {
        "lab": "rail:4",
        "tcp": "cubic",
        "faults": [],
        "rounds": 5,
        "collective": "all-reduce",
        "ranks": 4,
        "verdict": None,
        "rows": [row, row | {"size_bytes": 8, "count": 2}],
        "reduce_op": "sum",
        "root": 0,
        "ratios": [],
        "notes": [],
    }
    at_each_width(lambda file, width: benched.write(result, file, width=width))
    text = drawn(lambda file: benched.write(result, file, width=40))
    assert {"1048576", "262144", "42,616", "50,331", "1903456"} <= set(numbers(text))


def test_columns_is_obeyed_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["summary", "--sample"]) == 0
    narrow = capsys.readouterr().out
    assert max(len(line) for line in narrow.splitlines() if "$" not in line) <= 40
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["summary", "--sample"]) == 0
    wide = capsys.readouterr().out
    assert max(len(line) for line in wide.splitlines()) > 100
    assert not numbers(wide) - numbers(narrow)
    for nonsense in ("", "0", "-5", "wide"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert layout.console(io.StringIO()).width == layout.PIPED_WIDTH


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(
    "command",
    [
        ["library", "nccl-2-4@2.27", "--ranks", "16", "--nodes", "2", "--fabric", "dgx-h100"],
        ["bound", "all-gather", "--fabric", "dgx-a100:2"],
        ["workload", "llama3-70b", "--gpus", "64", "--parallel", "tp8,pp4"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_says_the_same_numbers_in_every_pipe(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for width in (5000, 40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(command) == 0
        said[width] = numbers(capsys.readouterr().out)
    assert said[5000]
    assert not any(said[5000] - said[width] for width in (40, 80, 200))


def test_each_time_of_a_difference_in_json_stands_in_its_text() -> None:
    def side(factor: float) -> dict[str, Any]:
        entry = {"op": "all-reduce", "kind": "benchmark", "nranks": 32, "task": "out-of-place", "busbw_gbs": 36.53}
        return {
            "bandwidth": [entry | {"size_bytes": 1 << n, "time_us": factor * 1.37 ** (2 * n - 5)} for n in range(3, 31)]
        }

    found = diff.diff(side(1.0), side(6.1038))
    wanted = Counter(simulated.time(row[key]) for row in found["bandwidth"] for key in ("before_us", "after_us"))
    for width in WIDTHS:
        shown = numbers(drawn(lambda file, width=width: changes.write(found, file, width=width)))  # type: ignore[misc]
        assert not wanted - shown
        assert shown["6.10"] >= len(found["bandwidth"])
