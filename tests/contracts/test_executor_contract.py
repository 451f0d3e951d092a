"""Executors keep their contract on real ranks; one that returns wrong bits, hangs or hides a rank's error is told by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outsiders import install
from ringwright.execute import batch, executors
from ringwright.execute.executor import Executor
from ringwright.execute.launch import Start
from ringwright.execute.mpi_runtime import available
from ringwright.ground.errors import UsageError
from ringwright_lab.contracts import executor as contract
from ringwright_lab.testing import check_executor, failures

pytestmark = pytest.mark.once
NO_MPI = importlib.util.find_spec("mpi4py") is None or len(available()) < 2
NO_TORCH = importlib.util.find_spec("torch") is None
mpi = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(NO_MPI, reason="the MPI wheels are absent: no ranks over MPI"),
]
torch = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks"),
]
# Each time one executor of a kind; tests/execute/test_executors.py holds right sums, lost messages and failed ranks of them all.
in_campaigns = pytest.mark.sampled(0, "*")
# Runs a rank, and then one of these, in which ``answer`` is the path of what it found and ``code`` how it ended.
AROUND = """
import subprocess, sys
from pathlib import Path
from ringwright.execute.job import NodeResult, RankJob, read_struct, write
*command, folder, node = sys.argv[1:]
code = subprocess.run([*command, folder, node]).returncode
answer = Path(folder) / f"answer-{node}"
"""
FLIPPED = """
found = read_struct(answer, list[NodeResult])
for each in found:
    each.results = [(block, begin, bytes([part[0] ^ 1]) + part[1:] if part else part) for block, begin, part in each.results]
write(answer, found)
"""
SILENT = """
if code:
    cases = read_struct(Path(folder) / "job", RankJob).cases
    write(answer, [NodeResult(number, "ring") for number, _ in enumerate(cases)])
"""
MUTE = """
if code:
    (Path(folder) / f"status-{node}").unlink(missing_ok=True)
sys.exit(code and 3)
"""
MOST_S = 60.0


@dataclasses.dataclass(frozen=True)
class Wrapped(Executor):
    """Starts ranks inside of something else."""

    around: str = ""

    def starts(self, *given: Any, **named: Any) -> list[Start]:
        starts = super().starts(*given, **named)
        return [
            dataclasses.replace(start, argv=(sys.executable, "-c", AROUND + self.around, *start.argv))
            for start in starts
        ]


class Hanging(Executor):
    def starts(self, *given: Any, **named: Any) -> list[Start]:
        starts = super().starts(*given, **named)
        return [
            dataclasses.replace(start, argv=(sys.executable, "-c", "import time; time.sleep(600)")) for start in starts
        ]


class NeverStarting(Executor):
    def starts(self, *given: Any, **named: Any) -> list[Start]:
        time.sleep(3)
        return super().starts(*given, **named)


class Forgetful(Executor):
    def starts(self, *given: Any, **named: Any) -> list[Start]:
        return super().starts(*given, **named)[:-1]


@pytest.mark.parametrize(
    "name",
    [
        "memory",
        "sockets",
        pytest.param("openmpi", marks=mpi),
        pytest.param("mpich", marks=[*mpi, in_campaigns]),
        pytest.param("gloo", marks=torch),
        pytest.param("gloo-batched", marks=[*torch, in_campaigns]),
        "nccl",
    ],
)
@pytest.mark.usefixtures("forked_ranks")  # ranks that are programs: tests/execute/test_executors.py
def test_every_executor_keeps_its_contract(name: str) -> None:
    (outcome,) = check_executor(name)
    assert outcome.failed == {}
    assert set(outcome.passed) == set(contract.CHECKS) or "ready" in outcome.declined


def test_all_that_ship_are_tried() -> None:
    (mark,) = (each for each in test_every_executor_keeps_its_contract.pytestmark if each.name == "parametrize")
    assert {getattr(each, "values", [each])[0] for each in mark.args[1]} == set(executors.EXECUTORS)


BROKEN: list[tuple[str, Executor, str]] = [
    ("right", Wrapped("flipped", "memory", says="wrong", around=FLIPPED), "elements differ; first: rank 0"),
    ("blames", Wrapped("silent", "memory", says="wrong", around=SILENT), "rank 1 failed, and it says that all is well"),
    (
        "blames",
        Wrapped("mute", "memory", says="wrong", around=MUTE),
        "rank 1 failed, and it says: rank 0 ended with exit code 3",
    ),
    ("right", Hanging("hanging", "memory", says="wrong"), "rank 0 does not answer"),
    ("starts", NeverStarting("never", "memory", says="wrong"), "it has not said how ranks are started"),
    ("starts", Forgetful("forgetful", "memory", says="wrong"), "of 3 ranks it starts [0, 1]"),
    ("declared", Executor("mine", "memory"), "it does not say over what messages go"),
    ("declared", Executor("mine", "memory", "pigeons", says="wrong"), "the backend 'pigeons' is not one of"),
]


@pytest.mark.parametrize(("check", "broken", "why"), BROKEN)
def test_what_is_wrong_with_an_executor_is_told_by_name(
    check: str, broken: Executor, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "STARTED_S", 1.0)
    if broken.name == "hanging":
        monkeypatch.setattr(batch, "START_S", 0.5)
    monkeypatch.setattr(contract, "TYPES", ("float32",))
    asked = {"declared", "starts", check} | ({"ends"} if broken.name == "silent" else set())  # each check starts ranks
    monkeypatch.setattr(contract, "CHECKS", {name: look for name, look in contract.CHECKS.items() if name in asked})
    began_s = time.monotonic()
    (outcome,) = check_executor(broken)
    assert why in outcome.failed[check]
    if broken.name == "silent":
        assert outcome.failed["ends"] == "a message was never sent, and it says that all is well"
    assert time.monotonic() - began_s < MOST_S


def test_an_executor_of_others_is_known_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from ringwright.execute.executor import Executor\nNICE = Executor('any', 'memory', says='local, politely')\nNO = 3\n"
    points = {"executors": {"nice": "outside_nice:NICE", "no": "outside_nice:NO"}}
    install(tmp_path, monkeypatch, points, outside_nice=text)
    monkeypatch.setattr(contract, "CHECKS", {"right": contract.right})  # it is the executor that is known: one check
    assert failures(check_executor("nice")) == []
    (error,) = executors.problems()
    assert "is of type int, not an Executor" in error.what
    with pytest.raises(UsageError, match="no executor 'no'"):
        executors.executor("no")


def test_what_is_no_executor_is_told() -> None:
    assert failures(check_executor("carrier-pigeon")) == [
        "carrier-pigeon 2 and 3 ranks: known: no executor 'carrier-pigeon'"
    ]
