"""The law of parts: a recording's files in any partition, its parts merged in any order, is the recording read at once."""

from __future__ import annotations

import gzip
import random
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import shared_data
from every_recording import MADE
from ringwright.analysis.summary import summarise
from ringwright.cli.convert import convert
from ringwright.executors.fan_out import fan_out
from ringwright.formats.sources import part_files, parts, read
from ringwright.formats.sources.captures import kinds_of, parted
from ringwright.ground.errors import InputError, RingwrightError
from sources.test_calls import GROUP, HEAD, call, end, text

DRAWS = 500
MOST_PARTS = 7
SKIPPED = (".md", ".parquet")
# Folders of the published data that hold programs, topologies and tables of others: no recordings.
NONE_OF = frozenset(
    "bench-topologies overlap peers goal htsim simai mpi-tuning msccl-xml mscclpp-json nccl-topo taccl-inputs validation".split()
)
OWN = ("every kind", "ranks of a job")


def folders() -> dict[str, list[Path]]:
    """Return the published recordings of several files, by folder."""
    if not shared_data.is_present():
        return {}
    top = shared_data.data_folder()
    below = [each for each in sorted(top.rglob("*")) if each.is_dir() and each.name not in NONE_OF]
    named = {str(each.relative_to(top)): recordings(each) for each in below}
    return {name: files for name, files in named.items() if len(files) > 1}


def recordings(folder: Path) -> list[Path]:
    return [each for each in sorted(folder.iterdir()) if each.is_file() and each.suffix not in SKIPPED]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Recordings made here: one of every kind as if they were of one job, and the ranks of a job in files of their own."""
    made = tmp_path_factory.mktemp("made")
    for kind, files in MADE.items():
        for name, data in files(made).items():
            target = made / "mixed" / kind / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    ranks = made / "ranks"
    ranks.mkdir()
    for rank in range(8):
        head = HEAD | {"rank": rank, "world": 9, "host": f"n{rank // 4}", "wall_ns": 10**18 + rank * 10**6}
        (ranks / f"calls.n{rank // 4}.{rank}.jsonl").write_bytes(text(head, GROUP, call(0), end(0), call(1), end(1)))
    packed = gzip.compress(text(HEAD | {"rank": 8, "world": 9}, GROUP, call(0), end(0)))
    (ranks / "calls.n2.8.jsonl.gz").write_bytes(packed[:-9])  # cut
    return {OWN[0]: [each for each in (made / "mixed").rglob("*") if each.is_file()], OWN[1]: recordings(ranks)}


def draws() -> list[tuple[str, int]]:
    """Return recordings, each with seeds: five hundred draws."""
    names = [*OWN, *folders()]
    return [(names[number % len(names)], number) for number in range(DRAWS)]


@cache
def at_once(files: tuple[str, ...]) -> Any:
    """Return what is said of files that each reader reads itself, one after the other."""
    with mock.patch.object(parts, "apart", lambda told, *_: told):
        return told([*files])


def told(names: list[str]) -> Any:
    """Return what is said of some inputs, or why nothing is."""
    try:
        return dict(summarise(read(names, executor="local:1")))
    except RingwrightError as error:
        return {"refused": error.what}


def written(files: list[Path], target: Path) -> str:
    with fan_out("local:1") as fan:
        made = parts.apart([kinds_of(each) for each in parted([str(each) for each in files]).sources], fan, None)
        part_files.write(target, parts.parts(made))
    return str(target)


@pytest.mark.shared_data
@pytest.mark.sampled(24, "seed")
@pytest.mark.parametrize(("recording", "seed"), draws())
def test_any_partition_merged_in_any_order_is_one_read(
    recording: str, seed: int, own: dict[str, list[Path]], tmp_path: Path
) -> None:
    files = own[recording] if recording in own else recordings(shared_data.real(recording))
    rng = random.Random(seed)
    lots: list[list[Path]] = [[] for _ in range(rng.randint(1, MOST_PARTS))]
    for file in rng.sample(files, len(files)):
        rng.choice(lots).append(file)
    named = [written(lot, tmp_path / f"{number}.zip") for number, lot in enumerate(lots) if lot]
    merged, whole = told(rng.sample(named, len(named))), at_once(tuple(map(str, files)))
    assert whole["ledger"]["lines"] > 0
    assert [name for name in {*whole, *merged} if whole.get(name) != merged.get(name)] == []


def test_parts_are_written_by_a_verb_and_counted_once(own: dict[str, list[Path]], tmp_path: Path) -> None:
    files = [str(each) for each in own[OWN[1]]]
    first, both = tmp_path / "first.zip", tmp_path / "both.zip"
    assert convert(*files[:5], output=first, format="parts") == 0
    assert convert(*files[3:], output=both, format="parts") == 0
    assert told([str(first), str(both)]) == at_once(tuple(files))
    with pytest.raises(InputError, match="cut, or was changed"):
        read(str(changed(first, tmp_path)))


def changed(archive: Path, folder: Path) -> Path:
    """Return an archive of which one byte of what a part says is another."""
    import zipfile

    other = folder / "changed.zip"
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(other, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            made.writestr(name, data[:-1] + bytes([data[-1] ^ 1]))
    return other


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_no_answer_depends_on_how_many_read(workers: int, own: dict[str, list[Path]]) -> None:
    for files in own.values():
        names = [str(each) for each in files]
        assert dict(summarise(read(names, executor=f"local:{workers}"))) == at_once(tuple(names))
