"""What lies in a store is read as the same file of this machine is, and is written whole or not at all; no secret is shown."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFileSystem

import ringwright
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.formats.sources.gate import addresses
from ringwright.formats.sources.gate.inputs import CHUNK_BYTES, chunks, find
from ringwright.ground import extras, stores
from ringwright.ground.errors import EXIT_GOOD, EXIT_INPUT, EXIT_USAGE, InputError, MissingExtraError, UsageError

pytestmark = pytest.mark.once

SECRET = "hunter2secret"


@pytest.fixture
def store() -> Iterator[MemoryFileSystem]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as what it may lie there as."""
    folder = tmp_path_factory.mktemp("job")
    text = gzip.decompress(Path(ringwright.sample()).read_bytes())
    (folder / "job.log").write_bytes(text)
    (folder / "job.log.gz").write_bytes(gzip.compress(text))
    (folder / "job.log.zst").write_bytes(zstandard.compress(text))
    ringwright.read(ringwright.sample()).save(folder / "trace")
    for name, of in {"logs": "job.log", "traces": "trace"}.items():
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(folder / of, of)
    return folder


@pytest.fixture
def stored(store: MemoryFileSystem, job: Path) -> str:
    store.put(str(job), "/bucket/run", recursive=True)
    return "memory://bucket/run"


def summary(name: str, folder: str) -> Any:
    """A summary, in which a folder is called FOLDER."""
    return json.loads(json.dumps(ringwright.summary(read(name)), default=str).replace(folder, "FOLDER"))


@pytest.mark.parametrize(
    "name",
    ["job.log", "job.log.gz", "job.log.zst", "logs.tar.gz", "traces.tar.gz", "trace", "job.*.gz", "t*/meta.json"],
)
def test_what_lies_in_a_store_is_read_as_the_same_file_is(stored: str, job: Path, name: str) -> None:
    local = {"job.*.gz": "job.log.gz", "t*/meta.json": "trace"}.get(name, name)
    assert summary(f"{stored}/{name}", "memory:///bucket/run") == summary(str(job / local), str(job))
    inputs = read(f"{stored}/{name}").meta["inputs"]
    if "trace" not in name and "meta" not in name:
        assert [each.partition("!")[0] for each in inputs] == [f"memory:///bucket/run/{local}"]


def test_a_folder_of_a_store_gives_its_recordings_or_the_trace_in_it(store: MemoryFileSystem, job: Path) -> None:
    store.put(str(job / "job.log"), "/bucket/both/logs/job.log")
    store.pipe("/bucket/both/logs/picture.png", b"no recording")
    store.pipe("/bucket/both/logs/.job.log.draft/half.log", b"half")
    store.put(str(job / "trace"), "/bucket/both/saved", recursive=True)
    trace = read("memory://bucket/both")
    assert trace.meta["inputs"] == ["memory:///bucket/both/logs/job.log"]
    assert not trace.meta["passed_over"]
    store.rm("/bucket/both/logs", recursive=True)
    assert read("memory://bucket/both").df.equals(read(str(job / "trace")).df)
    twice = ["memory://bucket/both/saved/meta.json", "memory://bucket/both/saved/events.parquet"]
    assert read(twice).df.equals(read(str(job / "trace")).df), "one Trace, named twice"
    store.pipe("/bucket/both/other/meta.json", b'{"of": "another program"}')
    assert read("memory://bucket/both").df.equals(read(str(job / "trace")).df)


def test_a_database_of_a_store_is_copied(store: MemoryFileSystem, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rank0.sqlite") as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER)")
    store.put(str(tmp_path / "rank0.sqlite"), "/bucket/rank0.sqlite")
    errors = []
    for name in (str(tmp_path / "rank0.sqlite"), "memory://bucket/rank0.sqlite"):
        with pytest.raises(InputError) as caught:
            read(name)
        errors.append(caught.value.what)
    assert errors[0] == errors[1]


class Counted(MemoryFileSystem):
    """A store that notes how much is asked for at a time, and can end in the middle."""

    protocol = "counted"
    cachable = False
    largest = 0
    fails_after = 1 << 60
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.partition("counted://")[2].rpartition("@")[2] if "://" in path else path

    def _open(self, path: str, mode: str = "rb", **given: Any) -> Any:
        stream = super()._open(path, mode, **given)
        if mode != "rb":
            return stream
        whole, given_out = stream.read, [0]

        class Noted:
            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

            def read(self, size: int = -1) -> bytes:
                data = whole(size)
                given_out[0] += len(data)
                Counted.largest = max(Counted.largest, len(data))
                if given_out[0] > Counted.fails_after:
                    raise RuntimeError(f"401 for https://user:{SECRET}@store/x?X-Amz-Signature={SECRET} token={SECRET}")
                return data

        return Noted()


@pytest.fixture
def counted() -> type[Counted]:
    fsspec.register_implementation("counted", Counted, clobber=True)
    Counted.largest, Counted.fails_after = 0, 1 << 60
    Counted.store.clear()
    return Counted


def test_a_large_file_streams(counted: type[Counted]) -> None:
    line = b"x" * 99 + b"\n"
    with fsspec.open("counted://bucket/large.log", "wb") as out:
        for _ in range(60):
            out.write(line * 10_000)
    (source,) = find(["counted://bucket/large.log"])
    assert len(source.head(1000)) == 1000
    assert counted.largest <= addresses._BLOCK_BYTES, "a head is no download"
    assert sum(len(each.data) for each in chunks(source)) == 60_000_000
    assert counted.largest <= CHUNK_BYTES


@pytest.mark.parametrize("name", ["job.log", "job.log.gz", "job.log.zst", "logs.tar.gz"])
def test_a_store_that_fails_is_no_damage_and_no_half_answer(
    counted: type[Counted], job: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fsspec.filesystem("counted").put(str(job / name), f"/bucket/{name}")
    counted.fails_after = (job / name).stat().st_size - 1
    assert main(["summary", f"counted://me:{SECRET}@bucket/{name}"]) == EXIT_INPUT
    assert main(["summary", f"counted://bucket/{name}"]) == EXIT_INPUT
    said = capsys.readouterr()
    assert "RuntimeError: 401 for https://store/x" in said.err
    assert SECRET not in said.err + said.out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("s3://bucket/run/*.jsonl", "s3://bucket/run/*.jsonl"),
        (f"s3://AKIA:{SECRET}@bucket/run", "s3://bucket/run"),
        (f"s3://AKIA:{SECRET}/+x@bucket/run", "s3://bucket/run"),
        (f"https://host:8080/a@b/job.log?X-Amz-Signature={SECRET}", "https://host:8080/a@b/job.log"),
        (f"https://{SECRET}@host/job.log#{SECRET}", "https://host/job.log"),
        (f"https://host?{SECRET}", "https://host"),
        ("s3://bucket/rank?.log", "s3://bucket/rank?.log"),
        (f"az://box/rank.log?sv=1&sig={SECRET}", "az://box/rank.log"),
        ("abfs://box@account.dfs.core.windows.net/run", "abfs://box@account.dfs.core.windows.net/run"),
        (f"abfs://box:{SECRET}@account/run", "abfs://account/run"),
        ("s3://bucket/run@2/x", "s3://bucket/run@2/x"),
        ("runs/a@b:c", "runs/a@b:c"),
        (f"--out=ftp://me:{SECRET}@host/x", "--out=ftp://host/x"),
    ],
)
def test_no_secret_of_an_address_is_shown(given: str, told: str) -> None:
    assert stores.shown(given) == told


def test_answers_pages_and_errors_hold_no_secret(
    stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "_strip_protocol", classmethod(_without_user))
    address = f"memory://me:{SECRET}@bucket/run/job.log.gz?sig={SECRET}"
    monkeypatch.setattr(sys, "argv", ["ringwright", "summary", address])
    out = f"memory://me:{SECRET}@bucket/out"
    for words in (
        ["summary", address],
        ["summary", address, "--json"],
        ["check", address, "--step-summary", str(tmp_path / "step.md")],
        ["diff", address, address],
        ["query", "select count(*) from events", address],
        ["summary", f"{address}.none"],
        ["report", address, "-o", f"{out}.html", "--json"],
        ["report", address, "-o", f"{out}.html"],
        ["convert", address, "-o", out, "--json"],
        ["convert", address, "-o", out],
        ["live", address, "--once"],
    ):
        main(words)
    said = capsys.readouterr()
    assert said.out.count("memory://bucket/out") > 5
    assert SECRET not in said.out + said.err + (tmp_path / "step.md").read_text()
    system = fsspec.filesystem("memory")
    written = b"".join(system.cat(path) for path in system.find("/bucket") if "/out" in path)
    assert len(written) > 10_000
    assert SECRET.encode() not in written


def _without_user(kind: type[MemoryFileSystem], path: str) -> str:
    """As stores take an address whose user they know."""
    bare = path.removeprefix("memory://").split("?")[0]
    return "/" + bare.rpartition("@")[2].strip("/") if bare else ""


@pytest.mark.parametrize(
    ("form", "name"), [("parquet", "saved"), ("csv", "tables"), ("jsonl", "job.jsonl"), ("prometheus", "job.prom")]
)
def test_what_is_written_into_a_store_is_what_is_written_here(
    stored: str, store: MemoryFileSystem, tmp_path: Path, form: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["convert", f"{stored}/job.log", "--format", form, "--json", "-o"]
    assert main([*words, str(tmp_path / name)]) == EXIT_GOOD
    here = json.loads(capsys.readouterr().out)["outputs"]
    assert main([*words, f"memory://bucket/new/{name}"]) == EXIT_GOOD
    there = json.loads(capsys.readouterr().out)["outputs"]
    assert [each.removeprefix("memory://bucket/new") for each in there] == [
        each.removeprefix(str(tmp_path)) for each in here
    ]
    for each in there:
        local = tmp_path / each.removeprefix("memory://bucket/new/")
        if local.suffix != ".parquet":
            assert store.cat(each) == local.read_bytes()
    if form == "parquet":
        assert read(f"memory://bucket/new/{name}").df.equals(read(str(tmp_path / name)).df)
    before = {each: store.cat(each) for each in store.find("/bucket/new")}
    assert main([*words, f"memory://bucket/new/{name}"]) == EXIT_USAGE
    assert "memory://bucket/new" in capsys.readouterr().err
    assert {each: store.cat(each) for each in store.find("/bucket/new")} == before
    assert main([*words, f"memory://bucket/new/{name}", "--force"]) == EXIT_GOOD


def test_a_report_goes_to_a_store(stored: str, store: MemoryFileSystem, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", f"{stored}/job.log", "--json", "-o", "memory://bucket/pages/job.html"]
    assert main(words) == EXIT_GOOD
    told = json.loads(capsys.readouterr().out)
    assert told["output"] == "memory://bucket/pages/job.html"
    assert told["size_bytes"] == store.size("/bucket/pages/job.html")
    assert main(words) == EXIT_USAGE
    assert main([*words, "--force"]) == EXIT_GOOD
    assert main([*words[:-1], f"{stored}/trace", "--force"]) == EXIT_USAGE, "no page takes a capture's name"
    assert store.exists("/bucket/run/trace/meta.json")


def test_only_a_capture_is_replaced_and_nothing_of_the_old_one_stays(stored: str, store: MemoryFileSystem) -> None:
    store.pipe("/bucket/mine/notes.txt", b"mine")
    words = ["convert", f"{stored}/job.log", "--force", "-o"]
    assert main([*words, "memory://bucket/mine"]) == EXIT_USAGE
    assert store.cat("/bucket/mine/notes.txt") == b"mine"
    store.pipe("/bucket/run/trace/notes.txt", b"mine too")
    assert main([*words, f"{stored}/trace"]) == EXIT_USAGE, "what lies beside a Trace is not removed with it"
    assert main([*words, stored]) == EXIT_USAGE, "nor the folder above it"
    store.rm("/bucket/run/trace/notes.txt")
    store.pipe("/bucket/run/trace/events/part-00001.parquet", b"of the old one")
    assert main([*words, f"{stored}/trace"]) == EXIT_GOOD
    assert not store.exists("/bucket/run/trace/events/part-00001.parquet")


def test_a_second_writer_meanwhile_is_not_overwritten(store: MemoryFileSystem) -> None:
    def written() -> None:
        with stores.delivered("memory://bucket/a.html", force=False) as local:
            local.write_text("ours")
            store.pipe("/bucket/a.html", b"theirs")

    with pytest.raises(UsageError, match="exists"):
        written()
    assert store.cat("/bucket/a.html") == b"theirs"


def test_what_cannot_be_written_whole_is_taken_back(
    stored: str, store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, sent = MemoryFileSystem.put_file, []

    def refused(self: Any, here: str, there: str, **given: Any) -> None:
        sent.append(there)
        if len(sent) == 4:
            raise PermissionError(f"quota of secret_key={SECRET}")
        whole(self, here, there, **given)

    monkeypatch.setattr(MemoryFileSystem, "put_file", refused)
    assert main(["convert", f"{stored}/job.log", "-o", "memory://bucket/full"]) == EXIT_USAGE
    assert len(sent) == 4
    assert not any(each.endswith("meta.json") for each in sent), "what says that all is there goes last"
    assert not store.find("/bucket/full")
    said = capsys.readouterr().err
    assert "PermissionError: quota" in said
    assert SECRET not in said


def test_nothing_is_written_when_the_work_fails(store: MemoryFileSystem) -> None:
    folders: list[Path] = []

    def written() -> None:
        with stores.delivered("memory://bucket/a.html", force=True) as local:
            folders.append(local.parent)
            local.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written()
    assert not store.exists("/bucket/a.html")
    assert not folders[0].exists()


def test_what_is_too_large_for_the_disk_is_not_copied(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")._replace(free=2000)
    monkeypatch.setattr(addresses.shutil, "disk_usage", lambda _: free)
    for name in ("trace", "logs.tar.gz"):
        with pytest.raises(InputError, match="half of the free space"):
            read(f"{stored}/{name}")
    assert read(f"{stored}/job.log.gz").df.height, "what streams needs no disk"


def test_no_name_climbs_out_of_the_copy() -> None:
    """A key of a store may be any text."""
    keys = (
        "bucket/up/job.log",
        "bucket/up/../../job.log",
        "bucket/up/a/../../../b",
        "bucket/up//etc/passwd",
        "bucket/up/c/",
    )
    system = SimpleNamespace(
        info=lambda _: {"type": "directory"},
        find=lambda *_, **__: {key: {"type": "file", "size": 1} for key in keys},
        unstrip_protocol=lambda key: f"s3://{key}",
    )
    listed = addresses.listed(system, "bucket/up", "s3://bucket/up")
    assert sorted(str(each.within) for each in listed) == ["etc/passwd", "job.log"]


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'nothing' is no kind of store"):
        read("nothing://bucket/x")
    with pytest.raises(UsageError, match="one address in another"):
        read("zip://*.log::memory://bucket/x.zip")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(MissingExtraError) as caught:
        read("s3://bucket/x")
    assert caught.value.remedy.endswith("pip install s3fs")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError) as caught:
        read("memory://bucket/x")
    assert caught.value.remedy == extras.install("stores")


def test_a_store_is_served_from_a_copy(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ringwright.reports.serve import server

    served: dict[str, int] = {}
    monkeypatch.setattr(
        server, "serve", lambda paths, **_: served.update({each: read(each).df.height for each in paths})
    )
    assert main(["serve", f"{stored}/trace", f"{stored}/job.log", "--no-open"]) == EXIT_GOOD
    rows = read(ringwright.sample()).df.height
    assert {Path(path).name: each for path, each in served.items()} == {"trace": rows, "job.log": rows}
    assert not any(Path(path).exists() for path in served), "the copies go with the server"


def test_live_follows_no_store(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["live", f"{stored}/job.log", "--once"]) == EXIT_USAGE
    assert f"ringwright summary {stored}/job.log" in capsys.readouterr().err
