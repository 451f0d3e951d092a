"""Fan out: whoever executes, the results are the same, in order, each once; what is lost is begun again, what is done is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fan_out_tasks as tasks
from ringwright.execute import mpi_runtime
from ringwright.executors import kept_results, worker
from ringwright.executors.content import name_of
from ringwright.executors.fan_out import FanOut, fan_out
from ringwright.executors.kinds import TellingFutures, parsed, shared_out
from ringwright.executors.kinds.local import LocalEngine
from ringwright.executors.shared import let_go, share, shared
from ringwright.ground.errors import InfeasibleError, InputError, MissingExtraError, OutputError, UsageError

NUMBERS = [(number,) for number in range(7)]
TESTS = Path(tasks.__file__).parent


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where results are kept, a folder that is not there yet; workers find the functions of tests."""
    monkeypatch.setenv(kept_results.FOLDER, str(tmp_path / "kept"))
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return tmp_path / "kept"


def roots(fan: FanOut) -> list[float]:
    return [each.root for each in fan.map(tasks.root, NUMBERS)]


# ------------------------------------------------------------------------------------------------------ who executes
@pytest.fixture
def dask() -> Any:
    """Return the spelling of a Dask scheduler with two workers."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        yield f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"


@contextmanager
def processes_of_dask(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Give the address of a scheduler that is a process, which has one worker, and the process."""
    told, dask = folder / "scheduler.json", [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    with (folder / "said").open("wb") as said:
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told)]
        scheduler = subprocess.Popen([*dask, *words], stdout=said, stderr=said)
        words = ["--scheduler-file", str(told), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", *words], stdout=said, stderr=said
        )
        try:
            while not told.exists():
                assert scheduler.poll() is None, (folder / "said").read_text()
                time.sleep(0.05)
            yield json.loads(told.read_text())["address"].removeprefix("tcp://"), scheduler
        finally:
            for each in (scheduler, worker):
                each.kill()
                each.wait()


@pytest.mark.parametrize("spelling", [None, "local", "local:1", "local:2"])
def test_processes_of_this_machine_give_the_same_results(spelling: str | None) -> None:
    with fan_out(spelling) as fan:
        results = fan.map(tasks.root, NUMBERS)
    assert [(each.number, each.root) for each in results] == [(number, number**0.5) for (number,) in NUMBERS]
    assert all(type(each) is tasks.Root for each in results)
    assert fan.account.tasks == len(NUMBERS)
    assert fan.account.name == ("local:2" if spelling == "local:2" else fan.account.name)


def test_two_processes_are_other_processes_and_are_used_again() -> None:
    with fan_out("local:2") as fan:
        first = {each.process for each in fan.map(tasks.root, NUMBERS)}
    with fan_out("local:2") as fan:
        second = {each.process for each in fan.map(tasks.root, NUMBERS)}
    assert os.getpid() not in first | second
    assert len(first | second) <= 2


def test_what_is_known_to_be_less_work_than_a_call_takes_to_begin_is_done_by_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalEngine, "begins_s", 1.0)
    asking = os.getpid()
    with fan_out("local:2") as fan:
        unknown = {each.process for each in fan.map(tasks.root, NUMBERS)}
        little = {each.process for each in fan.map(tasks.root, [(8,), (9,)])}
        monkeypatch.setattr(LocalEngine, "begins_s", 1e-9)
        much = {each.process for each in fan.map(tasks.root, [(10,), (11,)])}
    assert (asking in unknown, little, asking in much) == (False, {asking}, False)
    assert fan.account.tasks == len(NUMBERS) + 4


def test_any_object_of_the_interface_executes() -> None:
    with ThreadPoolExecutor(3) as threads, fan_out(threads) as fan:
        assert roots(fan) == [number**0.5 for (number,) in NUMBERS]
    assert (fan.account.name, fan.account.workers) == ("ThreadPoolExecutor", 3)
    with pytest.raises(UsageError, match="list is no executor"):
        fan_out([]).__enter__().map(tasks.root, NUMBERS)  # type: ignore[arg-type]


@pytest.mark.skipif(find_spec("submitit") is None, reason="submitit is absent")
def test_an_array_of_jobs_gives_the_same_results(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("what lies there already")
    with fan_out(f"slurm:cluster=local,nodes=2,folder={tmp_path}") as fan:
        assert roots(fan) == [number**0.5 for (number,) in NUMBERS]
    assert fan.account.workers == 2
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


@pytest.mark.filterwarnings("ignore")
def test_a_dask_scheduler_gives_the_same_results(dask: str) -> None:
    with fan_out(dask) as fan:
        assert roots(fan) == [number**0.5 for (number,) in NUMBERS]
    assert (fan.account.name, fan.account.workers) == (dask, 2)


@pytest.mark.filterwarnings("ignore")
def test_a_dask_scheduler_that_is_killed_is_told_with_what_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with processes_of_dask(tmp_path) as (address, scheduler):

        def killed(done: int, _of: int, _name: str) -> None:
            if done >= 2:
                scheduler.kill()

        given = [(number, str(tmp_path / "notes")) for number in range(100)]
        gone = pytest.raises(InfeasibleError, match="its scheduler is gone")
        with gone as caught, fan_out(f"dask://{address},timeout=1") as fan:
            fan.map(tasks.noted, given, progress=killed)
    assert caught.value.where == f"dask://{address}"
    assert 0 < int(str(caught.value.remedy).split()[0]) < len(given)


@pytest.mark.mpi
@pytest.mark.skipif(find_spec("mpi4py") is None, reason="the MPI wheels are absent")
def test_ranks_of_mpi_give_the_same_answer() -> None:
    words = [sys.executable, "-m", "ringwright", "reproduce", "blueconnect", "netai2020", "--json", "--executor"]
    library = mpi_runtime.runtime(mpi_runtime.available()[0])
    around = {"MPI4PY_RC_THREAD_LEVEL": "multiple"}
    line, environment = mpi_runtime.command(library, 3, [*words, "mpi"], around, oversubscribed=True)
    answers = [
        json.loads(subprocess.run(each, env=os.environ | environment, capture_output=True, check=False).stdout)
        for each in (line, [*words, "local:1"])
    ]
    assert [each.pop("executor")["name"] for each in answers] == ["mpi", "local:1"]
    assert answers[0]["papers"] == answers[1]["papers"]


@pytest.mark.parametrize(
    ("tasks", "workers", "size"), [(0, 2, 1), (64, 2, 1), (65, 2, 2), (6400, 2, 100), (6400, None, 1)]
)
def test_small_tasks_travel_together_where_workers_are_counted(tasks: int, workers: int | None, size: int) -> None:
    assert shared_out(tasks, workers) == size


# ------------------------------------------------------------------------------------------------- what goes wrong
def test_the_task_of_a_process_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    given = [(number, str(tmp_path / "killed")) for number in range(6)]
    with fan_out("local:2") as fan:
        assert fan.map(tasks.killed_once, given) == list(range(6))
    assert fan.account.retried >= 1


def test_a_task_that_always_ends_its_process_is_named() -> None:
    with (
        pytest.raises(InfeasibleError, match="task 1 of 1 was begun 4 times and came to no end"),
        fan_out("local:2") as fan,
    ):
        fan.map(tasks.killed_always, [(1,)])


def test_it_is_named_among_others_that_it_ended_too() -> None:
    with pytest.raises(InfeasibleError, match="task 8 of 40 was begun 4 times"), fan_out("local:2") as fan:
        fan.map(tasks.kills_at_seven, [(number,) for number in range(40)])


class LosesTheFirst(TellingFutures):
    """An engine of two workers, four calls each, that loses the first call."""

    name, workers, ahead, lost = "loses", 2, None, (EOFError,)

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def together(self, tasks: int) -> int:
        return shared_out(tasks, self.workers, 4)

    def submit(self, function: Any, /, *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        self.sizes.append(len(given[-1]))
        if len(self.sizes) == 1:
            done.set_exception(EOFError("gone"))
        else:
            done.set_result(function(*given))
        return done

    def renew(self) -> None:
        """Nothing is to be done."""

    def close(self, *, at_once: bool = False) -> None:
        """Nothing is to be done."""


def test_tasks_of_a_lost_call_are_begun_again_in_smaller_calls() -> None:
    fan, engine = FanOut("local:2"), LosesTheFirst()
    fan._open = lambda: engine
    results = fan.map(tasks.root, [(number,) for number in range(256)])
    assert [each.number for each in results] == list(range(256))
    assert engine.sizes == [32] * 8 + [4] * 8
    assert fan.account.retried == 32
    fan.close()


def test_a_task_that_hangs_is_begun_elsewhere(tmp_path: Path) -> None:
    given = [(number, str(tmp_path / "hung")) for number in range(4)]
    with fan_out("local:2") as fan:
        assert fan.map(tasks.hangs_once, given, deadline_s=2.0) == list(range(4))
    assert fan.account.retried >= 1


def test_a_task_shares_nothing_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_EXECUTOR", "dask://127.0.0.1:1")
    with fan_out("local:2") as fan:
        assert fan.map(tasks.shares_out, [(1,), (2,)]) == ["local:1"] * 2


def test_a_deadline_is_spelled(tmp_path: Path) -> None:
    given = [(number, str(tmp_path / "hung")) for number in range(4)]
    with fan_out("local:2,deadline=2") as fan:
        assert fan.map(tasks.hangs_once, given) == list(range(4))
    with pytest.raises(UsageError, match="deadline=soon"):
        fan_out("local:2,deadline=soon").__enter__()


class Gone:
    """An executor whose scheduler goes after three calls."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        self.calls += 1
        if self.calls > 3:
            raise RuntimeError("cannot schedule new futures after shutdown")
        done: Future[Any] = Future()
        done.set_result(function(*given))
        return done


def test_a_scheduler_that_is_gone_is_told_with_what_is_kept() -> None:
    with pytest.raises(InfeasibleError, match="cannot schedule new futures") as caught, fan_out(Gone()) as fan:  # type: ignore[arg-type]
        fan.map(tasks.root, NUMBERS)
    assert (caught.value.where, "the same command goes on there" in str(caught.value.remedy)) == ("Gone", True)


@pytest.mark.parametrize("spelling", ["local:1", "local:2"])
def test_a_full_disk_of_a_worker_is_told(spelling: str) -> None:
    with (
        pytest.raises(OSError if spelling == "local:1" else OutputError, match="No space left"),
        fan_out(spelling) as fan,
    ):
        fan.map(tasks.fills_the_disk, [(1,), (2,)])


@pytest.mark.parametrize("spelling", ["local:1", "local:2"])
def test_an_error_comes_as_it_is(spelling: str) -> None:
    with pytest.raises(UsageError, match="-3 has no root") as caught, fan_out(spelling) as fan:
        fan.map(tasks.root, [(1,), (-3,), (-4,)])
    assert (caught.value.where, caught.value.remedy) == ("here", "a number above 0")


def test_a_bug_tells_where_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"number // 0[\s\S]*ZeroDivisionError"), fan_out("local:2") as fan:
        fan.map(tasks.broken, [(1,)])


class Apart:
    """An executor whose workers have another version."""

    def submit(self, function: Any, terms: worker.Terms, *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(terms._replace(inventory={**terms.inventory, "ringwright": "9.9"}), *given))
        return done


def test_a_worker_of_another_version_is_refused_with_both() -> None:
    from ringwright.ground.version import VERSION

    with pytest.raises(UsageError, match=rf"has ringwright {VERSION} \(here 9\.9\)"), fan_out(Apart()) as fan:  # type: ignore[arg-type]
        fan.map(tasks.root, NUMBERS)


def test_a_worker_that_does_not_see_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not see .*nowhere"), fan_out("local:2") as fan:
        fan.map(tasks.root, NUMBERS, paths=[str(tmp_path / "nowhere")])


# ------------------------------------------------------------------------------------------------------------ resume
def test_a_run_that_was_cut_short_goes_on_where_it_was(tmp_path: Path, kept: Path) -> None:
    notes = tmp_path / "notes"
    given = [(number, str(notes)) for number in range(8)]
    came: list[int] = []

    def stop(_number: int, result: int) -> None:
        came.append(result)
        if len(came) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fan_out("local:2") as fan:
        fan.map(tasks.noted, given, each=stop)
    assert len(list(kept.iterdir())) >= 2
    with fan_out("local:2") as fan:
        assert fan.map(tasks.noted, given) == list(range(8))
    assert fan.account.resumed >= 2
    asked = [int(line) for line in notes.read_text().split()]
    assert set(asked) == set(range(8))
    assert len(asked) <= 8 + 3  # what was being done when it was cut short is done again, and nothing else
    assert not kept.exists()


def test_a_result_that_a_failing_machine_cut_is_made_again(tmp_path: Path, kept: Path) -> None:
    results = kept_results.KeptResults()
    results.keep("whole", b"result")
    results.keep("cut", b"result")
    results.keep("empty", b"result")
    (kept / "cut.msgpack").write_bytes((kept / "cut.msgpack").read_bytes()[:-1])
    (kept / "empty.msgpack").write_bytes(b"")
    again = kept_results.KeptResults()
    assert [*again.of(["cut", "whole", "empty", "never"])] == [(1, b"result")]
    results.forget()
    assert not kept.exists()


# ------------------------------------------------------------------------------------------------------------- names
def test_a_run_that_ends_leaves_what_tells_workers_of_another_where_results_are_kept(kept: Path) -> None:
    with fan_out("local:2") as longer:
        seen = Path(longer.beside())
        (kept / "mine.tables").touch()
        longer.owns(kept / "mine.tables")
        with fan_out("local:2") as shorter:
            assert shorter.beside() == longer.beside()
        assert seen.is_file()
    assert not kept.exists()


def test_a_name_is_made_of_content(tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("1")
    given = (1.5, "a", {"x": (1, 2), "b": {3, 4}}, np.arange(3), file, tasks.Root(1, 1.0, 2))
    name = name_of(tasks.root, given)
    assert name == name_of(
        tasks.root, (1.5, "a", {"b": {4, 3}, "x": (1, 2)}, np.arange(3), file, tasks.Root(1, 1.0, 2))
    )
    others = [
        name_of(tasks.broken, given), name_of(tasks.root, given, "another release"), name_of(tasks.root, (1, *given[1:])),
        name_of(tasks.root, (*given[:3], np.arange(3.0), *given[4:])), name_of(tasks.root, (*given[:5], tasks.Root(1, 1.0, 3))),
    ]  # fmt: skip
    file.write_text("12")
    assert len({name, *others, name_of(tasks.root, given)}) == 7


def test_what_is_no_data_has_no_name() -> None:
    with pytest.raises(TypeError, match="cannot be imported by a worker"):
        name_of(lambda: None, ())
    with pytest.raises(TypeError, match="generator is no data"):
        name_of(tasks.root, ((each for each in ()),))


def test_a_name_is_the_same_in_another_process() -> None:
    given = "({'b': 1, 'a': {2.5, 1.5}}, ('x', 3))"
    code = (
        f"import fan_out_tasks as t; from ringwright.executors.content import name_of; print(name_of(t.root, {given}))"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert names == {name_of(tasks.root, eval(given)) + "\n"}


# --------------------------------------------------------------------------------------------------------- spellings
@pytest.mark.parametrize(
    ("spelling", "kind", "address", "settings"),
    [
        ("local", "local", "", {}),
        ("local:3", "local", "3", {}),
        ("dask://host:8786", "dask", "host:8786", {}),
        ("dask://host:8786,ca=a.pem,key=k", "dask", "host:8786", {"ca": "a.pem", "key": "k"}),
        ("ray", "ray", "", {}),
        ("ray://host:10001", "ray", "host:10001", {}),
        ("slurm:partition=P,nodes=4,time=30", "slurm", "", {"partition": "P", "nodes": "4", "time": "30"}),
        ("mpi", "mpi", "", {}),
    ],
)
def test_spellings(spelling: str, kind: str, address: str, settings: dict[str, str]) -> None:
    told = parsed(spelling)
    assert (told.kind, told.address, told.settings) == (kind, address, settings)


@pytest.mark.parametrize(
    ("spelling", "what"),
    [
        ("spark", "no executor is spelled 'spark'"),
        ("", "no executor is spelled ''"),
        ("local:0", "no number above 0"),
        ("local:two", "'two' of the executor 'local:two' says nothing"),
        ("local:2,nodes=3", "local has no setting 'nodes'"),
        ("mpi:3", "an executor of MPI has no address '3'"),
        ("mpi", "no other rank waits for tasks"),
        ("slurm:cluster=mars", "'mars' is no cluster"),
        ("slurm:nodes", "'nodes' of the executor 'slurm:nodes' says nothing"),
    ],
)
def test_what_is_none_is_refused(spelling: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        parsed(spelling).opened()
    assert caught.value.remedy


@pytest.mark.parametrize(("spelling", "module"), [("dask://x:1", "distributed"), ("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_library_has_its_remedy(spelling: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        parsed(spelling).opened()
    assert "install" in (caught.value.remedy or "")


@pytest.mark.filterwarnings("ignore")
def test_nobody_answers_there() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        parsed("dask://127.0.0.1:9,timeout=1").opened()


def test_what_tasks_share_is_made_once_and_anew_for_another_question() -> None:
    asked: list[int] = []

    def noted(number: int) -> list[int]:
        asked.append(number)
        return [number]

    first = shared(noted, 1, name="1")
    assert shared(noted, 1, name="1") is first
    shared(noted, 2, name="2")
    assert shared(noted, 1, name="1") is not first
    let_go(noted)
    shared(noted, 1, name="1")
    assert asked == [1, 2, 1, 1]
    mine = tasks.root(16)
    share(mine, tasks.root, 4)
    assert (shared(tasks.root, 4), shared(tasks.root, 9).root) == (mine, 3.0)
