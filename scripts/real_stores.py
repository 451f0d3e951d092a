"""What real servers of object stores give, beside the same files of this machine; see scripts/real-stores."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import zstandard

import ringwright

BIN = Path(sys.executable).parent
SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"  # noqa: S105 - of the documentation
INPUTS = ("job.log", "job.log.gz", "job.log.zst", "logs.tar.gz", "traces.tar.gz", "trace", "job.log*")
LARGE_BYTES = 100 << 20
OUTPUTS = {"parquet": "out/trace", "csv": "out/tables", "jsonl": "out/job.jsonl", "perfetto": "out/job.json"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def server(*words: str, port: int) -> Iterator[None]:
    """Run a server until the block ends."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"{words[0]} does not answer")
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def s3(_: Path) -> Iterator[tuple[str, dict[str, str]]]:
    port = free_port()
    around = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with server(str(BIN / "moto_server"), "-p", str(port), port=port):
        os.environ.update(around)
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket/run", around


@contextlib.contextmanager
def gs(_: Path) -> Iterator[tuple[str, dict[str, str]]]:
    port = free_port()
    around = {
        "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}",
        "FSSPEC_GS_TOKEN": "anon",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks over gRPC, which no emulator answers
        "FSSPEC_GS_PROJECT": "here",
    }
    words = (str(BIN / "gcp-storage-emulator"), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory")
    with server(*words, "--default-bucket=bucket", port=port):
        os.environ.update(around)
        yield "gs://bucket/run", around


@contextlib.contextmanager
def http(job: Path) -> Iterator[tuple[str, dict[str, str]]]:
    port = free_port()
    with server(sys.executable, "-m", "http.server", str(port), "-b", "127.0.0.1", "-d", str(job.parent), port=port):
        yield f"http://127.0.0.1:{port}/{job.name}", {}


STORES: dict[str, Callable[[Path], Any]] = {"s3": s3, "gs": gs, "http": http}


def asked(*words: str, around: dict[str, str] | None = None, expected: int = 0) -> tuple[str, str, float, int]:
    """Return what the command says on both streams, the seconds that it took and the most memory that it held (kB)."""
    began_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = [sys.executable, "-m", "ringwright", *words]
        process = subprocess.Popen(command, stdout=out, stderr=err, env=os.environ | (around or {}))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said, told = out.read(), err.read()
    if process.returncode != expected:
        raise RuntimeError(f"{words}: {process.returncode}, {told or said}")
    if SECRET in said + told:
        raise RuntimeError(f"{words}: a secret is shown")
    return said, told, time.monotonic() - began_s, used.ru_maxrss


def made(folder: Path) -> Path:
    """Make the sample job as all that it may lie there as."""
    job = folder / "run"
    job.mkdir()
    text = gzip.decompress(Path(ringwright.sample()).read_bytes())
    (job / "job.log").write_bytes(text)
    (job / "job.log.gz").write_bytes(gzip.compress(text))
    (job / "job.log.zst").write_bytes(zstandard.compress(text))
    asked("convert", str(job / "job.log"), "-o", str(job / "trace"))
    for name, of in {"logs": "job.log", "traces": "trace"}.items():
        with tarfile.open(job / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(job / of, of)
    with (job / "large.log").open("wb") as out:
        while out.tell() < LARGE_BYTES:
            out.write(text)
    return job


def read_back(at: str, job: Path) -> dict[str, Any]:
    """Ask for every input there and here."""
    names = INPUTS if "http" not in at else INPUTS[:5]
    differing = []
    for name in names:
        here = asked("summary", *map(str, sorted(job.glob(name))), "--json")[0]
        there = asked("summary", f"{at}/{name}", "--json")[0]
        if without(there) != without(here):
            differing.append(name)
    return {"inputs": len(names), "differing": differing}


def without(text: str) -> Any:
    """Return a summary without the names of files, commands included."""
    return json.loads(re.sub(r"[^\s\"'(]*/run(?=[/\"'\s])", "RUN", text))


def large(at: str, job: Path) -> dict[str, Any]:
    """Ask for a large file there and here: seconds, and memory."""
    _, _, there_s, there_kb = asked("summary", f"{at}/large.log", "--json")
    _, _, here_s, here_kb = asked("summary", str(job / "large.log"), "--json")
    size = (job / "large.log").stat().st_size
    told = {"here_s": round(here_s, 1), "there_s": round(there_s, 1), "most_mb_there": there_kb >> 10}
    return {"large_mb": size >> 20, **told, "most_mb_here": here_kb >> 10}


def written(at: str, job: Path, folder: Path) -> dict[str, Any]:
    """Write every form there and here, and refuse to write it twice."""
    equal = 0
    system, _ = fsspec.core.url_to_fs(at)
    for form, name in OUTPUTS.items():
        words = ["convert", str(job / "job.log"), "--format", form, "-o"]
        asked(*words, f"{at}/{name}")
        (folder / name).parent.mkdir(exist_ok=True)
        asked(*words, str(folder / name))
        asked(*words, f"{at}/{name}", expected=2)
        asked(*words, f"{at}/{name}", "--force")
        system.invalidate_cache()
        if form == "parquet":
            equal += (
                asked("query", "select * from events", f"{at}/{name}", "--json")[0]
                == asked("query", "select * from events", str(folder / name), "--json")[0]
            )
            continue
        base, here = system._strip_protocol(f"{at}/{name}"), folder / name
        local = (
            {each.relative_to(here).as_posix(): each.read_bytes() for each in here.rglob("*")}
            if here.is_dir()
            else {".": here.read_bytes()}
        )
        there = {each[len(base) :].lstrip("/") or ".": system.cat(each) for each in system.find(base)}
        equal += local == there
    asked("report", f"{at}/job.log", "-o", f"{at}/out/job.html")
    asked("report", f"{at}/job.log", "-o", f"{at}/out/job.html", expected=2)
    return {"outputs": len(OUTPUTS), "equal": equal, "report_bytes": system.size(f"{at}/out/job.html")}


def served(at: str) -> dict[str, Any]:
    """Serve what lies there until its report is asked for."""
    with tempfile.TemporaryDirectory() as keep:
        words = [sys.executable, "-m", "ringwright", "serve", f"{at}/trace" if "http" not in at else f"{at}/job.log"]
        process = subprocess.Popen(
            [*words, "--port", "0", "--keep", keep, "--json", "--no-open"], stdout=subprocess.PIPE, text=True
        )
        try:
            url = json.loads((process.stdout or sys.stdin).readline())["url"].split("#")[0].rstrip("/")
            for _ in range(300):
                time.sleep(0.2)
                record = next(iter(Path(keep, "jobs").glob("*/job.json")), None)
                job = json.loads(record.read_text()) if record else {}
                if job.get("state") in ("done", "failed"):
                    break
            with urllib.request.urlopen(url) as page:  # noqa: S310 - our own
                return {"served": job.get("state"), "called": job.get("name"), "page": page.status}
        finally:
            process.terminate()
            process.wait()


def refused(at: str) -> dict[str, Any]:
    """Ask with wrong names and secrets: nothing of them is said."""
    scheme, _, rest = at.partition("://")
    told = [asked("summary", f"{at}/nothing.log", expected=3)[1].splitlines()[0]]
    asked("summary", f"{scheme}://AKIAIOSFODNN7EXAMPLE:{SECRET}@{rest}/nothing.log?sig={SECRET}", expected=3)
    if scheme == "s3":
        told.append(asked("summary", "s3://nobucket/x.log", expected=3)[1].splitlines()[0])
        lost = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
        told.append(asked("summary", f"{at}/job.log", around=lost, expected=3)[1].splitlines()[0])
        none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
        told.append(asked("summary", f"{at}/job.log", around=none, expected=3)[1].splitlines()[0])
    return {"told": [re.sub(r"127\.0\.0\.1:\d+", "HOST", each) for each in told]}


def main() -> int:
    """Ask every store, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], help="(default: all)")
    parser.add_argument("--record", type=Path, help="write the rows as JSON")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        job = made(Path(scratch))
        for name in given.stores or STORES:
            with STORES[name](job) as (at, _):
                if name != "http":
                    fsspec.core.url_to_fs(at)[0].put(str(job), at.partition("://")[2], recursive=True)
                row: dict[str, Any] = {"store": name, **large(at, job), **read_back(at, job)}
                if name != "http":
                    row |= written(at, job, Path(scratch))
                row |= served(at) | refused(at)
            rows.append(row)
            print(json.dumps(row), flush=True)
            shutil.rmtree(Path(scratch) / "out", ignore_errors=True)
    if given.record:
        given.record.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return (
        0
        if all(
            not row["differing"] and row.get("equal") == row.get("outputs") and row["served"] == "done" for row in rows
        )
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
