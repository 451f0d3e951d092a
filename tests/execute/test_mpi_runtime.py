"""Ranks started by real MPI libraries: their collectives, forced algorithms, messages, and ranks in namespaces."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.algorithms.libraries import mpich2, open_mpi
from ringwright.algorithms.libraries.mpich2 import rules as mpich_rules
from ringwright.algorithms.libraries.open_mpi.menu import MENU
from ringwright.costs.open_mpi import Decision
from ringwright.execute import mpi_runtime
from ringwright.execute.mpi_forced import MPICH, OPEN_MPI, forced, offered
from ringwright.execute.mpi_runtime import Runtime, available, command, runtime
from ringwright.execute.rank_host import Place, here
from ringwright.ground import extras
from ringwright.ground.errors import DeclinedError, MissingExtraError, UsageError

ABSENT = importlib.util.find_spec("mpi4py") is None or len(available()) < 2
real = [pytest.mark.mpi, pytest.mark.skipif(ABSENT, reason="the MPI wheels are absent: no ranks over MPI")]
namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))), reason="namespaces need root"
)
SCRIPTS = Path(__file__).parents[1] / "mpi_ranks.py"
TABLES = {"open-mpi": OPEN_MPI, "mpich": MPICH}


def menus(name: str) -> dict[str, list[str]]:
    """Return the algorithms of each collective that a library of today can be forced to."""
    return {op: [slug for slug, way in ways.items() if way.since <= 5] for op, ways in TABLES[name].items()}


TURNS = [
    (name, n, turn)
    for name, n in (("open-mpi", 4), ("mpich", 2))
    for turn in range(max(map(len, menus(name).values())))
]


def start(name: str, n: int, task: str, settings: dict[str, str] | None = None, **how: Any) -> Any:
    """Run a task of mpi_ranks.py and return what rank 0 found."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(settings or {})}
    line, environment = command(runtime(name), n, [sys.executable, str(SCRIPTS), task], environment, **how)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


class TestWithoutMpi:
    def test_missing_mpi4py_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match="mpi4py") as raised:
            runtime("open-mpi")
        assert raised.value.remedy == extras.install("mpi")

    def test_missing_library_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(importlib.metadata, "distribution", absent)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(MissingExtraError, match="MPICH") as raised:
            runtime("mpich")
        assert raised.value.remedy == extras.install("mpi")
        assert available() == ()

    def test_a_launcher_on_the_path_is_taken(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        launcher = tmp_path / "mpirun"
        launcher.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
        launcher.chmod(0o755)
        monkeypatch.setattr(mpi_runtime, "_from_wheel", lambda name: None)
        monkeypatch.setattr(mpi_runtime, "_loads", lambda library: True)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setenv("PATH", str(tmp_path))
        found = runtime("openmpi")
        assert (found.name, found.version, found.major, found.prefix) == ("open-mpi", "4.1.4", 4, "")
        line, environment = command(found, 4, ["true"], {})
        assert line[:5] == [str(launcher), "--allow-run-as-root", "--bind-to", "none", "--oversubscribe"]
        assert (line[5:7], line[-2:]) == (["-np", "4"], ["--here", "true"])
        assert environment["OMPI_MCA_btl"] == "vader,self"  # what release 4 calls shared memory

    def test_what_the_caller_sets_wins(self) -> None:
        found = Runtime("open-mpi", "5.0.11", "/x/prterun", "/x/libmpi.so.40", "/x")
        _, environment = command(found, 2, ["true"], {"OMPI_MCA_pml": "ucx"}, transport="tcp")
        assert environment["OMPI_MCA_pml"] == "ucx"
        assert environment["OMPI_MCA_btl"] == "tcp,self"
        assert environment["MPI4PY_LIBMPI"] == "/x/libmpi.so.40"

    def test_mpich_is_not_crowded(self) -> None:
        found = Runtime("mpich", "5.0.2", "/x/mpiexec.hydra", "/x/libmpi.so.12", "/x")
        with pytest.raises(DeclinedError, match="core"):
            command(found, 4096, ["true"], {})
        assert command(found, 4096, ["true"], {}, oversubscribed=True)[0][-2:] == ["4096", "true"]

    @pytest.mark.parametrize("bad", [{"transport": "rdma"}, {"places": here(3)}])
    def test_bad_questions(self, bad: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            command(Runtime("mpich", "5", "x", "y"), 2, ["true"], {}, **bad)
        with pytest.raises(UsageError, match="no MPI library"):
            runtime("lam")


class TestForcedTables:
    def test_open_mpi_numbers_are_those_of_our_menu(self) -> None:
        for op, ways in OPEN_MPI.items():
            for slug, way in ways.items():
                made = MENU[op][int(way.called) - 1](
                    Decision(int(way.called), "", "", segment_bytes=1024), open_mpi.open_mpi
                )
                name = made.func.__name__ if isinstance(made, partial) else getattr(made, "__name__", "")
                assert name.replace("_", "-") == slug, (op, slug)

    def test_mpich_names_are_those_of_its_variables(self) -> None:
        for op, ways in MPICH.items():
            for slug, way in ways.items():
                assert way.called in mpich_rules.names(op), (op, slug)
                assert (op.removesuffix("-block"), way.called) in mpich2.MENU, (op, slug)

    def test_settings(self) -> None:
        ring = forced("open-mpi", "all-reduce", "segmented_ring", p=4)
        assert ring.settings["OMPI_MCA_coll_tuned_allreduce_algorithm"] == "5"
        assert ring.settings["OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize"] == str(1 << 20)
        tree = forced("mpich", "broadcast", "binary-tree", fanout=3).settings
        assert (tree["MPIR_CVAR_BCAST_INTRA_ALGORITHM"], tree["MPIR_CVAR_BCAST_TREE_KVAL"]) == ("tree", "3")

    def test_a_reduce_scatter_says_which_of_two_collectives(self) -> None:
        assert forced("open-mpi", "reduce-scatter", "ring").call == "reduce-scatter"
        assert forced("open-mpi", "reduce-scatter", "recursive-doubling").call == "reduce-scatter-block"

    @pytest.mark.parametrize(
        ("name", "op", "algorithm", "p"),
        [
            ("open-mpi", "all-reduce", "swing", 4),
            ("open-mpi", "all-gather", "recursive-doubling", 6),
            ("open-mpi", "all-gather", "neighbor-exchange", 5),
            ("mpich", "all-reduce", "linear", 2),
            ("mpich", "send-recv", "direct", 2),
        ],
    )
    def test_refusals_say_what_there_is(self, name: str, op: str, algorithm: str, p: int) -> None:
        with pytest.raises(DeclinedError) as raised:
            forced(name, op, algorithm, p=p)
        assert raised.value.remedy
        if algorithm in {"swing", "linear"}:
            assert "ring" in raised.value.remedy

    def test_what_is_wrong_in_place_is_refused_there(self) -> None:
        assert forced("open-mpi", "all-gather", "sparbit").called == "7"
        with pytest.raises(DeclinedError, match="in place"):
            forced("open-mpi", "all-gather", "sparbit", in_place=True)

    def test_a_later_release_has_more(self) -> None:
        assert "allgather-reduce" in offered("open-mpi", "all-reduce", release=6)
        with pytest.raises(DeclinedError):
            forced("open-mpi", "all-reduce", "allgather-reduce", release=5)


class TestRealRanks:
    pytestmark = real

    @pytest.mark.parametrize("transport", ["default", "tcp"])
    @pytest.mark.parametrize(("name", "says"), [("open-mpi", "Open MPI"), ("mpich", "MPICH")])
    def test_each_library_starts_its_ranks(self, name: str, says: str, transport: str) -> None:
        found = start(name, 2, "hello", transport=transport)
        assert found["ranks"] == [0, 1]
        assert all(says in each for each in found["libraries"])

    @pytest.mark.parametrize("name", ["open-mpi", "mpich"])
    def test_no_rank_outlives_its_launcher(self, name: str, tmp_path: Path) -> None:
        """The ranks hold the only writing ends of a pipe; when the launcher is killed, the pipe must end."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        environment = {**os.environ, "TMPDIR": str(tmp_path)}  # the launcher's own files stay when it is killed
        line, environment = command(runtime(name), 2, ["sh", "-c", f"exec sleep 30 > {pipe}"], environment)
        with subprocess.Popen(line, env=environment, stdout=-1, stderr=-1) as launcher, pipe.open("rb") as reading:
            launcher.kill()
            assert reading.read() == b""  # returns when no rank is left

    @pytest.mark.parametrize(("name", "n"), [("open-mpi", 3), ("mpich", 2)])
    def test_native_collectives_agree_with_numpy(self, name: str, n: int) -> None:
        found = start(name, n, "native")
        assert found["wrong"] == []
        assert found["checked"] >= 25
        assert "bfloat16" in found["declined"]

    @pytest.mark.sampled(4, "n", "turn")
    @pytest.mark.parametrize(("name", "n", "turn"), TURNS)
    def test_every_forced_algorithm_runs(self, name: str, n: int, turn: int) -> None:
        """One start forces one algorithm of each collective; a value that the library does not know makes it complain."""
        settings: dict[str, str] = {}
        known = set()
        for op, slugs in menus(name).items():
            slug = slugs[turn % len(slugs)]
            settings |= forced(name, op, slug, p=n).settings
            known |= set() if TABLES[name][op][slug].in_place else {f"{op} in place"}
        assert set(start(name, n, "native", settings)["wrong"]) <= known

    @pytest.mark.parametrize(("name", "n"), [("open-mpi", 3), ("mpich", 2)])
    @pytest.mark.parametrize("waits", ["block", "yield", "sleep"])
    def test_messages_come_whole_and_in_their_turn(self, name: str, n: int, waits: str) -> None:
        assert start(name, n, "wire", {"WAITS": waits}) == {"wrong": [], "rounds": 5}

    def test_the_benchmark_of_messages(self) -> None:
        command = [sys.executable, str(SCRIPTS.parents[1] / "benchmarks" / "bench_mpi_wire.py"), "--quick", "--json"]
        done = subprocess.run([*command, "--ranks", "2"], capture_output=True, text=True, timeout=HANG_S, check=True)
        found = json.loads(done.stdout)
        assert [row["what"] for row in found["rows"]] == ["call", "ring exchange", "all-reduce"]
        last = found["rows"][-1]
        assert last["ratio"] == pytest.approx(min(last["whole"], last["64 KiB"]) / last["native"])


@pytest.fixture(scope="module")
def places() -> Generator[tuple[Place, ...], None, None]:
    """Four namespaces on one bridge; they vanish with the processes that hold them."""
    holders = [subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 120"], stdout=-1) for _ in range(5)]
    try:
        for holder in holders:
            assert holder.stdout
            holder.stdout.readline()
        bridge, *hosts = [["nsenter", "-t", str(holder.pid), "-n", "--"] for holder in holders]
        lines = [[*bridge, "ip", "link", "add", "br0", "up", "type", "bridge"]]
        for number, host in enumerate(hosts):
            peer = ["peer", "name", "eth0", "netns", str(holders[number + 1].pid)]
            lines += [
                [*bridge, "ip", "link", "add", f"p{number}", "type", "veth", *peer],
                [*bridge, "ip", "link", "set", f"p{number}", "up", "master", "br0"],
                [*host, "ip", "addr", "add", f"10.91.0.{number + 1}/24", "dev", "eth0"],
                [*host, "ip", "link", "set", "eth0", "up"],
            ]
        for line in lines:
            subprocess.run(line, check=True, capture_output=True)
        yield tuple(Place(rank, f"10.91.0.{rank + 1}", "eth0", tuple(host)) for rank, host in enumerate(hosts))
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


@namespaces
class TestNamespaces:
    """Each rank counts what it sends through its own interface, in multiples of the vector."""

    pytestmark = real

    @pytest.mark.parametrize(
        ("algorithm", "sent"),
        [("ring", [1.5] * 4), ("recursive-doubling", [2.0] * 4), ("linear", [3.0, 1.0, 1.0, 1.0])],
    )
    def test_open_mpi_runs_what_it_is_forced_to(
        self, places: tuple[Place, ...], algorithm: str, sent: list[float]
    ) -> None:
        settings = forced("open-mpi", "all-reduce", algorithm).settings
        assert start("open-mpi", 4, "bytes", settings, places=places) == pytest.approx(sent, rel=0.1)

    @pytest.mark.parametrize(("algorithm", "sent"), [("ring", 1.5), ("recursive-doubling", 2.0)])
    def test_mpich_runs_what_it_is_forced_to(self, places: tuple[Place, ...], algorithm: str, sent: float) -> None:
        settings = forced("mpich", "all-reduce", algorithm).settings
        found = start("mpich", 4, "bytes", settings, places=places, oversubscribed=True)
        assert found == pytest.approx([sent] * 4, rel=0.1)  # acknowledgements and polls count as well

    @pytest.mark.parametrize("name", ["open-mpi", "mpich"])
    def test_a_failed_rank_fails_the_job(self, places: tuple[Place, ...], name: str) -> None:
        line, environment = command(runtime(name), 2, ["sh", "-c", "exit 7"], dict(os.environ), places[:2])
        done = subprocess.run(line, env=environment, capture_output=True, timeout=HANG_S, check=False)
        assert done.returncode == 7
