"""A saved Trace is read wherever it lies: its folder, an archive of it, its files one by one, a stream; and never twice."""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import ringwright
from ringwright.formats.sources.captures import parted
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace
from ringwright_lab.testing import noise, slow_ranks

pytestmark = pytest.mark.once
LOG = "n1:100:120 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x9 - Init COMPLETE\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = slow_ranks.job("none", 5, noise.ours())[0]
    return trace.save(tmp_path_factory.mktemp("job") / "run.trace")


def tar(folder: Path, saved: Path, mode: str = "w:gz", name: str = "rt.tgz") -> Path:
    with tarfile.open(folder / name, mode) as archive:  # type: ignore[call-overload]
        archive.add(saved, saved.name)
    return folder / name


def zipped(folder: Path, saved: Path) -> Path:
    with zipfile.ZipFile(folder / "rt.zip", "w") as archive:
        for file in saved.iterdir():
            archive.write(file, file.name)
    return folder / "rt.zip"


def below(folder: Path, saved: Path) -> Path:
    shutil.copytree(saved, folder / "a" / "b" / saved.name)
    (folder / "a" / "notes.txt").write_text("seven ranks\n")
    return folder / "a"


PLACES: dict[str, Callable[[Path, Path], list[Path]]] = {
    "folder": lambda folder, saved: [saved],
    "folder in a folder": lambda folder, saved: [below(folder, saved)],
    "files": lambda folder, saved: sorted(saved.iterdir()),
    "tgz": lambda folder, saved: [tar(folder, saved)],
    "tar": lambda folder, saved: [tar(folder, saved, "w", "rt.tar")],
    "zip": lambda folder, saved: [zipped(folder, saved)],
    "archive in a folder": lambda folder, saved: [tar(folder, saved).parent],
}


def same(one: Trace, other: Trace) -> bool:
    return all(one.table(name).equals(other.table(name)) for name in TABLES)


@pytest.mark.parametrize("place", PLACES)
def test_the_tables_are_the_same_wherever_they_lie(place: str, saved: Path, tmp_path: Path) -> None:
    read = ringwright.read([str(path) for path in PLACES[place](tmp_path, saved)])
    assert same(read, Trace.open(saved))
    assert not read.meta.get("losses")


@pytest.mark.parametrize("place", ["tgz", "tar", "zip"])
def test_standard_input_may_be_an_archive(
    place: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = PLACES[place](tmp_path, saved)
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(path.read_bytes())))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", stream)
    assert same(ringwright.read("-"), Trace.open(saved))


def test_standard_input_may_be_a_compressed_log(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ringwright.sample()
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(Path(path).read_bytes())))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", stream)
    assert ringwright.read("-").table("ledger")["lines"].sum() == ringwright.read(path).table("ledger")["lines"].sum()


def test_what_lies_beside_its_recording_is_not_read_twice(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "job" / saved.name)
    (tmp_path / "job" / "nccl.log").write_text(LOG)
    named = parted([str(tmp_path / "job")])
    assert not named.saved
    assert [Path(each.name).name for each in named.sources] == ["nccl.log"]


def test_several_in_one_place_are_not_taken_for_one_job(saved: Path, tmp_path: Path) -> None:
    for name in ("a.trace", "b.trace"):
        shutil.copytree(saved, tmp_path / "jobs" / name)
    with pytest.raises(InputError, match=r"2 saved Traces lie here: a\.trace, b\.trace"):
        ringwright.read(tmp_path / "jobs")


def test_a_meta_of_another_program_makes_no_saved_trace(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "nccl.log").write_text(LOG)
    inner = tmp_path / "job" / "wandb"
    inner.mkdir()
    (inner / "meta.json").write_text('{"format": "another"}')
    assert not parted([str(tmp_path / "job")]).saved


def test_nothing_in_an_archive_climbs_out_of_it(saved: Path, tmp_path: Path) -> None:
    """Files of a saved Trace keep their names; the folders above them are ours."""
    with tarfile.open(tmp_path / "up.tgz", "w:gz") as archive:
        for file in saved.iterdir():
            archive.add(file, f"../../outside/{file.name}")
    assert same(ringwright.read(tmp_path / "up.tgz"), Trace.open(saved))
    assert not (tmp_path.parent / "outside").exists()
    assert not (tmp_path.parent.parent / "outside").exists()


def test_a_damaged_archive_says_so(saved: Path, tmp_path: Path) -> None:
    path = tar(tmp_path, saved, "w", "rt.tar")
    path.write_bytes(path.read_bytes()[: saved.joinpath("claims.parquet").stat().st_size // 2])
    with pytest.raises(InputError):
        ringwright.read(path)
