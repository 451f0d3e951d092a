"""The MPI shim on real ranks: every call counted with its bytes and members, and programs that do not notice it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.capture.mpi import FILE_NAME, build, environment, family_of, with_variables
from ringwright.capture.mpi.launcher import FAMILIES, UNKNOWN, is_launcher
from ringwright.execute.mpi_runtime import available, command, runtime
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

HERE = Path(__file__).resolve().parents[1]
SOURCE = HERE.parent / "src" / "ringwright" / "capture" / "mpi"
STRICT = ("-Wall", "-Wextra", "-Werror")
PROGRAM = HERE / "mpi_shim_ranks.py"
ABSENT = importlib.util.find_spec("mpi4py") is None or len(available()) < 2

compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
real = [
    pytest.mark.mpi,
    compiler,
    pytest.mark.skipif(ABSENT, reason="the MPI wheels are absent: no ranks over MPI"),
]
LIBRARIES = [("open-mpi", 4), ("mpich", 2)]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"), flags=STRICT)


def compiled(name: str, folder: Path) -> Path:
    """Compile the C program for a library: with its own header where that is to be had. "mpi-5" is MPICH's standard ABI."""
    found = runtime("mpich" if name == "mpi-5" else name)
    prefix = Path(found.prefix) if found.prefix else Path("/usr")
    header = prefix / "include" / "mpi.h"
    own = header.is_file() and ("OPEN_MPI" in header.read_text()) == (name == "open-mpi")
    if name != "open-mpi" and not own:
        pytest.skip("the header of MPICH is absent")
    how = [f"-I{header.parent}"] if own else ["-DWITHOUT_HEADER"]
    if name == "mpi-5":
        how.append("-DMPI_ABI")
        found = replace(found, library=found.library.replace("libmpi.so.12", "libmpi_abi.so.1"))
        if not Path(found.library).is_file():
            pytest.skip("MPICH has no library of the standard ABI")
    library = found.library if Path(found.library).is_absolute() else f"-l:{found.library}"
    target = folder / f"program-{name}"
    line = [
        "cc",
        "-std=gnu11",
        "-O1",
        "-fno-pie",
        "-no-pie",
        "-pthread",
        *how,
        str(HERE / "mpi_shim_program.c"),
        library,
    ]
    rpath = [f"-Wl,-rpath,{Path(found.library).parent}"] if found.prefix else []
    subprocess.run([*line, *rpath, "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module", params=LIBRARIES, ids=lambda library: library[0])
def job(request: pytest.FixtureRequest, shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    name, ranks = request.param
    return Job(name, ranks, shim, compiled(name, tmp_path_factory.mktemp("program")))


class Job:
    """Starts ranks of one library, recorded into a folder or not."""

    def __init__(self, name: str, ranks: int, shim: Path, program: Path) -> None:
        self.name, self.ranks, self.shim, self.program = name, ranks, shim, program

    def run(
        self, *argv: str, capture: Path | None, ranks: int | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {} if capture is None else environment(self.shim, capture)
        whole = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1", **more}
        line, settings = command(
            runtime(self.name), ranks or self.ranks, argv, {**whole, **variables}, oversubscribed=True
        )
        return subprocess.run(line, env=settings, capture_output=True, text=True, timeout=HANG_S, check=False)

    def scene(self, *argv: str, **how: Any) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.program), *argv, **how)

    def task(self, name: str, folder: Path, **how: Any) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, str(PROGRAM), name, str(folder), **how)


class Record:
    """One calls file, read as the format's page says."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines()
        self.header, *self.lines = [json.loads(line) for line in lines]
        self.pid = self.header["pid"]
        self.begun = [line[1:] for line in self.lines if line[0] == "b"]
        self.groups = {line[1]: line for line in self.lines if line[0] == "g"}
        self.ended = {line[1]: line[2:] for line in self.lines if line[0] == "e"}
        self.losses = {line[1]: line[2] for line in self.lines if line[0] == "d"}
        self.end = [line[1] for line in self.lines if line[0] == "x"]

    def calls(self) -> list[Any]:
        """Return the calls in the form of mpi_shim_ranks.truth: what the end says of a message is its last word."""
        found = []
        for n, _, gid, *what, _, later, _ in self.begun:
            op, datatype, count, sent, received, root, peer, reduction = what
            if more := self.ended.get(n, [0])[1:]:
                count, received, peer = count * more[0] // received, *more
            found.append([op, datatype, count, sent, received, root, peer, reduction, later, self.groups[gid][7]])
        return found


def records(folder: Path) -> list[Record]:
    return sorted((Record(path) for path in folder.glob("calls.*.jsonl")), key=lambda record: record.header["rank"])


def sound(record: Record) -> None:
    """Hold a file of a finished job to what any such file has to keep."""
    assert [line[0] for line in record.begun] == list(range(len(record.begun)))
    assert set(record.ended) == set(range(len(record.begun)))
    assert all(record.ended[line[0]][0] >= line[1] for line in record.begun)
    seen: set[int] = set()
    for line in record.lines:
        if line[0] == "g":
            assert line[1] not in seen
            seen.add(line[1])
            assert line[7][line[6]] == record.header["rank"]
            assert len(line[7]) == line[5]
        elif line[0] == "b":
            assert line[3] in seen, "a group stands before its first call"
    assert record.end == ["finalize"]


class TestEveryCall:
    pytestmark = real

    @pytest.mark.sampled(1)
    @pytest.mark.parametrize(
        "task",
        ["blocking", "nonblocking", "prepared", "reversed", "messages", "completions", "groups", "types", "inner"],
    )
    def test_calls_bytes_and_members(self, job: Job, tmp_path: Path, task: str) -> None:
        done = job.task(task, tmp_path, capture=tmp_path)
        assert done.returncode == 0, done.stderr
        found = records(tmp_path)
        assert [record.header["rank"] for record in found] == list(range(job.ranks))
        for record in found:
            rank, p, truth = json.loads((tmp_path / f"truth.{record.pid}.json").read_text())
            assert (record.header["rank"], record.header["world"], record.header["local_rank"]) == (rank, p, rank)
            sound(record)
            for place, (seen, expected) in enumerate(zip(record.calls(), truth, strict=False)):
                assert seen == expected, (rank, place)
            assert len(record.begun) == len(truth)
            reasons = {
                "types": ["calls on an inter-communicator, not recorded"],
                "inner": [
                    "one-sided transfers (put, get, accumulate), counted and not recorded",
                    "windows of one-sided communication, counted and not recorded",
                ],
            }
            assert record.losses == dict.fromkeys(reasons.get(task, []), 1)

    def test_threads(self, job: Job, tmp_path: Path) -> None:
        done = job.scene("threads", capture=tmp_path, ranks=2)
        assert done.returncode == 0, done.stderr
        found = records(tmp_path)
        assert len(found) == 2
        for record in found:
            assert sorted(line[0] for line in record.begun) == sorted(record.ended) == list(range(1600))
            by_group = Counter((line[2], line[-2], line[-1]) for line in record.begun)
            assert sorted(by_group.values()) == [200] * 8  # a communicator a thread, half of the calls nonblocking
            assert len({gid for gid, _, _ in by_group}) == len({thread for _, _, thread in by_group}) == 4
            assert {tuple(line[5:8]) for line in record.begun} == {(1, 8, 8)}

    def test_header(self, job: Job, tmp_path: Path) -> None:
        assert job.scene("sums", capture=tmp_path).returncode == 0
        header = records(tmp_path)[0].header
        assert (header["ringwright"], header["source"]) == ("calls/1", "mpi-shim")
        assert header["library"] == {"open-mpi": "Open MPI ", "mpich": "MPICH "}[job.name] + runtime(job.name).version
        assert header["program"] == f"{job.program} sums"
        assert [record.groups[0][2:5] for record in records(tmp_path)] == [["MPI_COMM_WORLD", "", "mpi"]] * job.ranks


def many_messages(job: Job, folder: Path) -> None:
    done = job.scene("messages", capture=folder)
    assert done.returncode == 0, done.stderr
    assert len(records(folder)) == job.ranks
    for record in records(folder):
        sound(record)
        rank, p = record.header["rank"], record.header["world"]
        left, right = (rank - 1) % p, (rank + 1) % p
        many = [["recv", "int32", 1, None, 4, None, left, "", 1, list(range(p))]] * 100
        many += [["send", "int32", 1, 4, None, None, right, "", 1, list(range(p))]] * 100
        many += [["send", "int32", 10, 40, None, None, right, "", 0, list(range(p))]]
        many += [["recv", "int32", 10, None, 40, None, left, "", 0, list(range(p))]]
        many += [["all-reduce", "float64", 1, 8, 8, None, None, "max", 0, list(range(p))]]
        assert record.calls() == many


class TestPrograms:
    pytestmark = real

    def test_a_program_in_c(self, job: Job, tmp_path: Path) -> None:
        many_messages(job, tmp_path)

    def test_the_abi_of_the_standard(self, shim: Path, tmp_path: Path) -> None:
        many_messages(Job("mpich", 2, shim, compiled("mpi-5", tmp_path)), tmp_path)

    def test_calls_of_fortran_bindings(self, job: Job, tmp_path: Path) -> None:
        assert job.scene("profiled", capture=tmp_path).returncode == 0
        assert [len(record.begun) for record in records(tmp_path)] == [7] * job.ranks

    def test_code_and_output_are_the_programs_own(self, job: Job, tmp_path: Path) -> None:
        alone, behind = job.scene("code", capture=None), job.scene("code", capture=tmp_path)
        assert alone.returncode == behind.returncode == 7
        assert sorted(alone.stdout.splitlines()) == sorted(behind.stdout.splitlines())
        assert len(alone.stdout.splitlines()) == job.ranks
        found = records(tmp_path)
        assert [len(record.begun) for record in found] == [5] * job.ranks
        assert found[0].end == ["finalize"]  # its code may make the launcher end the others before they are through

    def test_abort(self, job: Job, tmp_path: Path) -> None:
        alone, behind = job.scene("abort", capture=None), job.scene("abort", capture=tmp_path)
        assert alone.returncode == behind.returncode != 0
        found = records(tmp_path)
        assert {len(record.begun) for record in found} == {5}
        lines = [line for record in found for line in record.lines if line[0] == "x"]
        assert lines
        assert {(line[1], line[3]) for line in lines} == {("abort", 9)}

    def test_exit_without_finalize(self, job: Job, tmp_path: Path) -> None:
        job.scene("exit", capture=tmp_path, ranks=1)
        (record,) = records(tmp_path)
        assert [line[1::2] for line in record.lines if line[0] == "x"] == [["exit", 6]]

    def test_a_killed_rank_leaves_what_had_happened(self, job: Job, tmp_path: Path) -> None:
        assert job.scene("kill", capture=tmp_path).returncode != 0
        found = records(tmp_path)
        assert len(found) == job.ranks
        assert len(found[0].begun) == len(found[0].ended) == 50
        assert not found[0].end
        assert all(50 <= len(record.begun) <= 51 for record in found)

    def test_a_fork_writes_nothing(self, job: Job, tmp_path: Path) -> None:
        assert job.scene("fork", capture=tmp_path).returncode == 0
        for record in records(tmp_path):
            sound(record)
            assert len(record.begun) == 10

    def test_descriptors_of_the_program_stay_its_own(self, job: Job, tmp_path: Path) -> None:
        assert job.scene("low-numbers", capture=tmp_path, ranks=1).returncode == 0
        assert len(records(tmp_path)[0].begun) == 10

    def test_a_taken_name(self, job: Job, tmp_path: Path) -> None:
        script = 'for n in "" -1; do : > "$0/calls.$(uname -n).$$$n.jsonl"; done; exec "$@"'
        done = job.run("sh", "-c", script, str(tmp_path), str(job.program), "sums", capture=tmp_path, ranks=1)
        assert done.returncode == 0, done.stderr
        (path,) = tmp_path.glob("calls.*-2.jsonl")
        sound(Record(path))


class TestNothingToRecordInto:
    pytestmark = real

    def test_no_variable_and_no_folder(self, job: Job, tmp_path: Path) -> None:
        unasked = job.scene("code", capture=None, LD_PRELOAD=str(job.shim))
        absent = job.scene("code", capture=tmp_path / "absent")
        assert unasked.returncode == absent.returncode == 7
        assert len(unasked.stdout.splitlines()) == len(absent.stdout.splitlines()) == job.ranks
        assert not list(tmp_path.iterdir())

    def test_full_disk(self, job: Job, tmp_path: Path) -> None:
        full = tmp_path / "full"
        full.mkdir()
        line = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)]
        if os.geteuid() != 0 or subprocess.run(line, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk needs root")
        try:
            done = job.scene("code", capture=full, ranks=2)
            assert (done.returncode, len(done.stdout.splitlines())) == (7, 2)
            assert len(records(full)) == 2
            done = job.scene("timed", "2000", capture=full, ranks=2)
            assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
            assert sum(path.stat().st_size for path in full.iterdir()) > 40_000
        finally:
            subprocess.run(["umount", "-l", str(full)], check=True)


@compiler
class TestOtherPrograms:
    @pytest.mark.parametrize("argv", [["true"], ["sh", "-c", "exit 5"], [sys.executable, "-c", "print(6 * 7)"]])
    def test_without_mpi(self, shim: Path, tmp_path: Path, argv: list[str]) -> None:
        with_shim = {**os.environ, **environment(shim, tmp_path)}
        alone = subprocess.run(argv, capture_output=True, check=False)
        behind = subprocess.run(argv, capture_output=True, env=with_shim, check=False)
        assert (alone.returncode, alone.stdout, alone.stderr) == (behind.returncode, behind.stdout, behind.stderr)
        assert not list(tmp_path.iterdir())

    def test_limit_on_the_size_of_files(self, tmp_path: Path) -> None:
        """The kernel's answer to a write beyond the limit would be a signal that kills."""
        program = tmp_path / "lines"
        line = ["cc", "-std=gnu11", *STRICT, f"-I{SOURCE}", str(HERE / "mpi_shim_lines.c"), str(SOURCE / "lines.c")]
        subprocess.run([*line, "-o", str(program)], check=True)
        done = subprocess.run([str(program), str(tmp_path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (5, "untouched\n")
        (path,) = tmp_path.glob("calls.*")
        lines = [json.loads(text) for text in path.read_text().splitlines()[1:]]
        assert 4096 < path.stat().st_size <= 8192
        assert [line[1] for line in lines] == list(range(len(lines)))

    def test_it_is_linked_to_no_mpi(self, shim: Path) -> None:
        needed = subprocess.run(["ldd", str(shim)], capture_output=True, text=True, check=True).stdout
        assert "mpi" not in needed.replace(str(shim), "")


@compiler
class TestBuild:
    def test_it_is_built_once(self, shim: Path, tmp_path: Path) -> None:
        first = build(tmp_path)
        written = first.stat().st_mtime_ns
        assert build(tmp_path) == first
        assert first.stat().st_mtime_ns == written
        assert build(tmp_path, flags=["-DOTHER"]) != first
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {FILE_NAME}

    def test_the_cache_is_the_users(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert build().is_relative_to(tmp_path / "ringwright")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", str(tmp_path / "me"))
        assert build_cache() == tmp_path / "me" / ".cache" / "ringwright" / "mpi-shim"

    def test_what_can_be_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(UsageError, match="no C compiler") as caught:
            build(tmp_path, compiler="no-such-compiler")
        assert "gcc" in caught.value.remedy
        with pytest.raises(UsageError, match="the compiler failed"):
            build(tmp_path, flags=["-no-such-flag"])
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot be written"):
            build(tmp_path / "file")


def build_cache() -> Path:
    from ringwright.ground.cache_folder import cache_folder

    return cache_folder("mpi-shim")


class TestVariables:
    def test_a_preloaded_library_stays(self) -> None:
        found = environment("/x/l.so", "/c", {"LD_PRELOAD": "/a.so /b.so:/x/l.so"})
        assert found == {"LD_PRELOAD": "/a.so:/b.so:/x/l.so", "RINGWRIGHT_CAPTURE": "/c"}
        with pytest.raises(UsageError, match="cannot be preloaded"):
            environment("/with space/l.so", "/c")

    @pytest.mark.parametrize(
        ("says", "name", "line"),
        [
            ("mpirun (Open MPI) 5.0.11", "open-mpi", ["-x", "A=b"]),
            ("mpirun (Open MPI) 4.1.4", "open-mpi", ["-x", "A=b"]),
            ("prterun (PRRTE) 3.0.7", "prrte", ["-x", "A=b"]),
            ("HYDRA build details:\n    Version: 5.0.2", "hydra", ["-genv", "A", "b"]),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.12", "intel-mpi", ["-genv", "A", "b"]),
            ("slurm 23.11.4", "slurm", []),
            ("something else", "unknown", []),
        ],
    )
    def test_families(self, tmp_path: Path, says: str, name: str, line: list[str]) -> None:
        launcher = tmp_path / "mpirun"
        launcher.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
        launcher.chmod(0o755)
        assert family_of(str(launcher)).name == name
        found, more = with_variables([str(launcher), "-n", "4", "./a"], {"A": "b"})
        assert found == [str(launcher), *line, "-n", "4", "./a"]
        assert more == {"A": "b"}

    def test_names(self, tmp_path: Path) -> None:
        silent = tmp_path / "prterun"
        silent.write_text("#!/bin/sh\nexit 1\n")
        silent.chmod(0o755)
        assert family_of(str(silent)).name == "prrte"
        assert is_launcher("/opt/bin/mpirun.openmpi")
        assert not is_launcher("./mpi_program")
        assert UNKNOWN not in FAMILIES
        with pytest.raises(UsageError, match="not a program"):
            family_of(str(tmp_path / "absent"))
        with pytest.raises(UsageError, match="no command"):
            with_variables([], {})

    @pytest.mark.mpi
    @pytest.mark.skipif(ABSENT, reason="the MPI wheels are absent: no ranks over MPI")
    @pytest.mark.parametrize(("name", "family"), [("open-mpi", "prrte"), ("mpich", "hydra")])
    def test_real_launchers_hand_variables_on(self, name: str, family: str) -> None:
        line, settings = command(runtime(name), 2, ["sh", "-c", 'echo "$ONE_OF_OURS"'], dict(os.environ))
        found, _ = with_variables(line, {"ONE_OF_OURS": "a,b:c"})
        assert family_of(line[0]).name == family
        done = subprocess.run(found, env=settings, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.stdout.split() == ["a,b:c"] * 2, done.stderr


def test_the_sources_ship() -> None:
    """Package data is what git knows and the wheel does not leave out."""
    excluded = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["exclude"]
    assert not {"**/*.c", "**/*.h"} & set(excluded)
    listed = subprocess.run(["git", "ls-files", str(SOURCE)], cwd=HERE, capture_output=True, text=True, check=True)
    here = {path.name for pattern in ("*.c", "*.h") for path in SOURCE.glob(pattern)}
    assert here
    assert here <= {Path(line).name for line in listed.stdout.splitlines()}
