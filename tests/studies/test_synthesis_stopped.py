"""Ctrl-C during a search: the first ends it as a deadline does, with the best so far; the second ends the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.algorithms.searching import Deadline, stoppable
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError
from ringwright.search import study
from ringwright.search.question import SynthesisSpec
from ringwright.search.study import Synthesised

pytestmark = pytest.mark.once

COMMAND = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom ringwright.cli import main\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path / "programs"))


def stopped(op: str, name: str, method: str, when: str, sizes: tuple[int, ...] = (1 << 24, 1 << 26)) -> Synthesised:
    """Return the answer of a search that is interrupted when the progress names ``when``."""

    def interrupt(done: int, of: int, name: str) -> None:
        del done, of
        if name == when:
            signal.raise_signal(signal.SIGINT)

    with stoppable():
        return study.synthesise(SynthesisSpec(op, fabric(name)), sizes, method, progress=interrupt)


@pytest.mark.parametrize(
    ("op", "name", "method"),
    [
        ("all-gather", "torus:3x3", "forest"),
        ("all-gather", "torus:3x3", "expand"),
        ("all-gather", "dgx-a100:2", "taccl"),
        ("all-to-all", "torus:2x3", "flow-all-to-all"),
        ("all-reduce", "dgx-a100:2", "p2"),
    ],
)
def test_a_search_that_is_interrupted_ends_with_the_best_so_far(op: str, name: str, method: str) -> None:
    result = stopped(op, name, method, method)
    (row,) = result.rows
    assert row.stopped
    assert row.verified
    assert result.stopped
    assert result.document()["stopped"] is True
    assert not result.rivals
    whole = study.synthesise(SynthesisSpec(op, fabric(name)), (row.size_bytes,), method, rivals=False)
    assert not whole.rows[0].kept, "what was stopped is not kept"
    assert not whole.stopped


def test_what_comes_after_is_left_out_and_what_was_before_stays() -> None:
    result = stopped("all-gather", "ring:4", "forest,p2", "p2")
    assert [row.method for row in result.rows][:1] == ["forest"]
    assert {row.size_bytes for row in result.rows} == {1 << 26}
    assert not result.rivals


def test_rivals_that_were_not_timed_are_left_out() -> None:
    result = stopped("all-gather", "ring:4", "forest", "other algorithms", (1 << 20,))
    assert result.rows[0].stopped is False
    assert result.stopped
    assert not result.rivals


def test_where_nothing_was_found_that_is_said() -> None:
    with pytest.raises(InfeasibleError, match="stopped before sccl had found a program for all-reduce") as error:
        stopped("all-reduce", "dgx-a100:2", "sccl", "sccl")
    assert error.value.exit_code == 5
    assert "--budget" in error.value.remedy


def test_the_second_interrupts_what_runs() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stoppable():
        deadline = Deadline(None)
        assert not deadline.passed()
        signal.raise_signal(signal.SIGINT)
        assert deadline.passed()
        assert deadline.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert not Deadline(None).passed()


def test_who_ignores_the_signal_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
            assert not Deadline(None).passed()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("methods", "code"), [("forest,sccl", 0), ("sccl", 5)])
def test_the_command_prints_what_it_has(methods: str, code: int) -> None:
    """SCCL's search takes far longer here than the signal does; it is sent when the command says that it has begun."""
    words = [
        "synthesise",
        "all-reduce",
        "--fabric",
        "dgx-a100:2",
        "--size",
        "64K",
        "--method",
        methods,
        "--alone",
        "-v",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND + f"sys.exit(main({words!r}))"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "sccl" in line:
            break
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=HANG_S)
    assert process.returncode == code, (out, said, rest)
    if code:
        assert "stopped before sccl had found a program" in rest
        assert not out
    else:
        assert "forest  64 KiB" in out
        assert "stopped: by Ctrl-C" in out
        assert "sccl at 64 KiB: stopped before it had found a program" in out


@pytest.mark.parametrize("method", ["usual", "forest,expand,p2"])
def test_no_answer_depends_on_how_many_search(method: str) -> None:
    def answer(executor: str) -> dict[str, Any]:
        question = SynthesisSpec("all-gather", fabric("dgx-a100:2"), fresh=True)
        told = study.synthesise(question, [1 << 16, 1 << 20, 1 << 24], method, executor=executor).document()
        for row in told["rows"]:  # type: ignore[attr-defined]
            row.pop("synthesis_s")
        return json.loads(json.dumps(told, default=str))  # type: ignore[no-any-return]

    alone = answer("local:1")
    assert alone == answer("local:2") == answer("local:3")
    assert len(alone["rivals"]) >= 3 * 15
