"""A categorical sentence is printed only where the columns that would refute it do not.

Each claim is looked for in everything that a summary says of each stored recording, made or real, and where it is found the
columns are asked. A claim that no recording makes is held by the recordings made here that would make it falsely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import ringwright
from every_recording import MADE, put
from ringwright.analysis.library_of_calls import OF_NCCL, made_by
from ringwright.analysis.summary import summarise
from ringwright.capture.doctor import examine
from ringwright.cli import main
from ringwright.ground.errors import RingwrightError
from ringwright.model.trace import Trace
from ringwright.reports import terminal
from shared_data import data_folder, is_present, needs_shared_data

pytestmark = pytest.mark.once

CALLS = ["collective", "p2p", "measurement"]
FEWEST_SYSTEMS = 5
NCCL_ONLY = re.compile(r"NCCL_DEBUG|NCCL_ALGO|\w+_perf -b|nvidia-smi")
GPU = re.compile(rb"\b(?:A100|H100|H200|H800|V100|B200|GB200|L40S|MI300X)\b")


class Said(NamedTuple):
    """One recording, what its summary holds, and every sentence that a terminal shows of it."""

    trace: Trace
    summary: dict[str, Any]
    text: str
    raw: bytes  # the first megabytes of its files


def timed(said: Said) -> bool:
    """Whether a call or a row of a benchmark has a duration."""
    rows = said.trace.df.filter(pl.col("kind").is_in(CALLS) & (pl.col("duration_s") > 0))
    return len(rows) > 0


def called(said: Said) -> bool:
    rows = said.trace.df.filter(pl.col("kind").is_in(["collective", "p2p"]))
    return len(rows) > 0


def reports(said: Said) -> set[tuple[Any, ...]]:
    """What watchdogs gave up in: operation, number, sizes and group, where a group is named."""
    rows = said.trace.df.filter((pl.col("kind") == "error") & (pl.col("op") == "watchdog"))
    told = [json.loads(task or "{}") for task in rows["task"].to_list()]
    return {(each["op"], each["seq"], each["nin"], each["nout"], each.get("pg")) for each in told}


def reporting(said: Said) -> int:
    rows = said.trace.df.filter((pl.col("kind") == "error") & pl.col("op").is_in(["watchdog", "progress"]))
    return rows["rank"].n_unique()


def all_waiting(said: Said) -> bool:
    """Every rank of a known number reported, all of them one operation of one named group."""
    (count,) = re.findall(r"all (\d+) ranks wait for the same operation", said.text)
    told = reports(said)
    return len(told) == 1 and None not in next(iter(told)) and reporting(said) == int(count)


def network(said: Said) -> list[str]:
    return said.trace.table("claims").filter(field="network")["value"].to_list()


# A claim -> whether the columns leave it standing.
CLAIMS: dict[str, Callable[[Said], bool]] = {
    r"not how long they took": lambda said: not timed(said),
    r"holds calls and their sizes": lambda said: bool(said.trace.df["size_bytes"].count()),
    r"no call of a collective was read": lambda said: not called(said) and not said.summary["bandwidth"],
    r"does not name its GPU": lambda said: (
        made_by(said.trace.meta) in (*OF_NCCL, "")
        and not said.trace.table("claims").filter(field="gpu").height
        and not GPU.search(said.raw)
    ),
    r"wait for the same operation": all_waiting,
    r"percentile \d+ of such systems": lambda said: all(
        row["n_systems"] >= FEWEST_SYSTEMS for row in said.summary["normal"]
    ),
    r"of such systems reach": lambda said: all(row["n_systems"] >= FEWEST_SYSTEMS for row in said.summary["normal"]),
    r"looks like default network settings": lambda said: not network(said),
    r"(?<![-\w/.])1 ranks\b": lambda said: False,
    r"cannot tell one rank: (?:1 ranks|rank \d)": lambda said: False,
    r"NCCL (?:MPICH|Open MPI|MVAPICH|torch)": lambda said: False,
    r"its algorithm was forced": lambda said: not called(said),
}


def judged(said: Said) -> list[str]:
    """Return the claims that are made and that the columns refute."""
    broken = [claim for claim, stands in CLAIMS.items() if re.search(claim, said.text) and not stands(said)]
    if made_by(said.trace.meta) in ("gloo", "mpi", "ucc", "xla") and (found := NCCL_ONLY.search(said.text)):
        broken.append(f"a remedy of NCCL's: {found[0]}")
    return broken


def said_of(paths: list[Path]) -> Said | None:
    """Return what is said of a recording; None where it is refused."""
    try:
        trace = ringwright.read([str(path) for path in paths])
        summary = dict(summarise(trace))
    except RingwrightError:
        return None
    files = [
        file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()
    ]
    text = terminal.text(summary, width=2000)  # type: ignore[arg-type]
    told = [text, *commands(summary)]
    return Said(trace, summary, "\n".join(told), b"\n".join(file.read_bytes()[: 4 << 20] for file in files[:64]))


@cache
def of_stored(name: str) -> Said | None:
    return said_of(stored()[name])


def commands(summary: dict[str, Any]) -> Iterator[str]:
    yield from (str(each.get("command", "")) for each in (*summary["findings"], *summary["culprits"]))
    yield str((summary["answer"] or {}).get("sentence", ""))
    yield str((summary["answer"] or {}).get("command", ""))


@pytest.mark.parametrize("kind", sorted(MADE))
def test_no_sentence_of_a_made_recording_is_refuted(kind: str, tmp_path: Path) -> None:
    said = said_of(put(tmp_path, MADE[kind](tmp_path)))
    assert said is not None
    assert judged(said) == []


@cache
def stored() -> dict[str, list[Path]]:
    """Return the stored recordings: each file of what the field sent, each folder of jobs and of others' programs."""
    if not is_present():
        return {}
    top = data_folder()
    listed = [path for path in sorted((top / "field").iterdir()) if path.suffix != ".md"]
    listed += [path for name in ("blame", "foreign") for path in sorted((top / name).iterdir()) if path.suffix != ".md"]
    return {f"{path.parent.name}/{path.name}": [path] for path in listed}


@needs_shared_data
@pytest.mark.sampled(30, "*")
@pytest.mark.parametrize("name", sorted(stored()) or [""])
def test_no_sentence_of_a_stored_recording_is_refuted(name: str) -> None:
    said = of_stored(name)
    assert said is None or judged(said) == []


FIELD = {
    "field/ds7019.log": "",
    "field/gen_ds_straggler.log": r"12 ms a rank, 8,000 us of it waiting for other ranks",
    "foreign/pp-kineto": r"most goes into recv",
    "field/ncclt347_one_node.txt": r"As fast as such systems are: all-reduce of 8 GiB",
    "field/gen_host_space.txt": r"As fast as such systems are: all-reduce of 8 GiB",
    "field/pytorch118369.log": r"ALLREDUCE 96117 on rank 0; ALLREDUCE 64088 on rank 7 \(groups not named\)",
    "field/gen_wd_old_one_seq_per_rank.log": r"Perhaps hung: the others wait for rank 7",
    "field/titan1092.log": r"rank 3 alone \(of 8 by the sizes",
    "field/lf6269.log": r"3 ranks \(of 8 by the sizes",
    "field/sglang1693.log": r"2 ranks \(of 8 by the sizes",
    "field/nccl527_p4d_4nodes.txt": r"63% of what NCCL's own cost model says",
    "blame/gc_1": r"Slow because rank 1 holds the others up now and then",
}


@needs_shared_data
@pytest.mark.parametrize("name", sorted(FIELD))
def test_what_was_said_falsely_is_said_rightly(name: str) -> None:
    said = of_stored(name)
    assert said is not None
    assert re.search(FIELD[name], said.text)


def test_a_false_sentence_is_noticed() -> None:
    """The law itself: each claim, put beside columns that refute it, is found."""
    row = {"kind": "collective", "op": "all-reduce", "rank": 0, "size_bytes": 8, "duration_s": 1e-3, "multiplicity": 1}
    claims = pl.DataFrame({"field": ["gpu", "network"], "value": ["H100", "IB"]})

    def of(seq: int) -> dict[str, Any]:
        return {"op": "X", "seq": seq, "nin": "1", "nout": "1"}

    watchdogs = [
        {"kind": "error", "op": "watchdog", "rank": rank, "task": json.dumps(of(seq))}
        for rank, seq in ((0, 96120), (7, 64088))
    ]
    events = pl.DataFrame([row, *watchdogs], infer_schema_length=None)
    trace = Trace.of({"events": events, "claims": claims}, {"source": "nccl-log"})
    summary = {"bandwidth": [{}], "normal": [{"n_systems": 2}]}
    false = {
        "the recording holds calls and their sizes, but not how long they took": r"not how long they took",
        "no call of a collective was read": r"no call of a collective was read",
        "it does not name its GPU": r"does not name its GPU",
        "all 2 ranks wait for the same operation": r"wait for the same operation",
        "percentile 0 of such systems (2 measured)": r"percentile \d+ of such systems",
        "6.0x below: looks like default network settings": r"looks like default network settings",
        "cannot tell one rank: 1 ranks hold": r"(?<![-\w/.])1 ranks\b",
        "calls · NCCL MPICH 5.0.2": r"NCCL (?:MPICH|Open MPI|MVAPICH|torch)",
        "all-reduce in group 0: its algorithm was forced": r"its algorithm was forced",
    }
    for text, claim in false.items():
        assert claim in judged(Said(trace, summary, text, b"")), text
    gloo = Trace.of({"events": events}, {"source": "calls", "library": "gloo"})
    assert judged(Said(gloo, summary, "sendrecv_perf -b 1M", b"")) == ["a remedy of NCCL's: sendrecv_perf -b"]


OTHERS = {"gloo": r"NCCL_|\w+_perf -b|nvidia-smi|CUDA", "mpi": r"NCCL_|\w+_perf -b|nvidia-smi|CUDA|torch|PyTorch"}
OTHERS["xla"] = OTHERS["mpi"]


def told_by_doctor(trace: Trace) -> str:
    return "\n".join(each["remedy"] for each in examine(trace=trace)["checks"])


@pytest.mark.parametrize(("library", "named"), [("gloo", "gloo"), ("mpi", "Open MPI 5.0"), ("xla", "")])
@pytest.mark.parametrize("lacking", ["duration_s", "size_bytes", "communicator", ""])
def test_what_is_lacking_is_recorded_by_the_means_of_the_library(library: str, named: str, lacking: str) -> None:
    row = {"kind": "collective", "op": "all-reduce", "rank": 0, "size_bytes": 8, "duration_s": 1e-3, "communicator": 0}
    row |= {lacking: None} if lacking else {}
    meta = {"source": "xplane"} if library == "xla" else {"source": "calls", "library": named}
    trace = Trace.of({"events": pl.DataFrame([row])}, meta)
    assert made_by(trace.meta) == library
    told = told_by_doctor(trace)
    assert not re.search(OTHERS[library], told), told
    means = {"gloo": "ringwright run -- COMMAND", "mpi": "mpirun", "xla": "jax.profiler"}
    assert lacking != "duration_s" or means[library] in told


@needs_shared_data
@pytest.mark.parametrize(
    "name", [name for name in sorted(stored()) if name.startswith(("blame/", "foreign/gloo"))] or [""]
)
def test_jobs_over_gloo_are_advised_nothing_of_nccl(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not re.search(OTHERS["gloo"], told_by_doctor(ringwright.read(stored()[name])))
    main(["advise", str(stored()[name][0])])
    told = capsys.readouterr()
    assert (told.out + told.err).strip()
    assert not re.search(OTHERS["gloo"], told.out + told.err)
