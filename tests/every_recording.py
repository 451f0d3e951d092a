"""A small recording of every kind that is read, for what is asked of all readers."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import profiler_recording

from kineto_traces import Maker
from nsys_export import write
from ringwright.formats.sources.sample import sample
from ringwright_lab.testing.flight_recorder import FlightJob
from sources.test_calls import GROUP, HEAD, call, end, text
from sources.test_inspector import lines, record
from sources.test_reader_fuzz import KINDS as RECORDINGS

MANIFEST = {"ringwright": "run/1", "host": "n1", "command": ["python", "train.py"], "ended_ns": 10**18, "exit_code": 0}
DEEPSPEED = Path(__file__).parent / "sources" / "deepspeed" / "calls-0.9.5.log"
MEGATRON = Path(__file__).parent / "sources" / "megatron" / "megatron-all.log"
RCCL = Path(__file__).parent / "sources" / "rccl" / "job.1275.node00.json"
TRACELENS = Path(__file__).parent / "sources" / "tracelens" / "nccl_long.csv"
TORCHCOMMS = Path(__file__).parent / "sources" / "torchcomms" / "documented.log"
XPLANE = Path(__file__).parent / "sources" / "xla" / "two.0.xplane.pb.gz"
NETWORK = HEAD | {"ringwright": "network/1", "source": "network"}
PROMETHEUS = b"""# TYPE nccl_collective_exec_time_microseconds gauge
nccl_collective_exec_time_microseconds{collective="AllReduce",rank="0",comm_id="0xa",n_ranks="2",message_size="1048576"} 100
"""


def kineto(folder: Path) -> dict[str, bytes]:
    maker = Maker()
    maker.step(1, 0.0, 100.0)
    maker.collective(10.0, 20.0)
    return {"rank0.json": maker.text()}


MADE: dict[str, Callable[[Path], dict[str, bytes]]] = {
    "nccl-log": lambda folder: {"job.log": gzip.decompress(sample().read_bytes())},
    "nsys": lambda folder: {"a.sqlite": write(folder / "made.sqlite").read_bytes()},
    "nccl-profiler": lambda folder: {"a.rwprof": profiler_recording.recording()},
    "xplane": lambda folder: {"a.xplane.pb": gzip.decompress(XPLANE.read_bytes())},
    "calls": lambda folder: {"calls.n1.0.jsonl": text(HEAD, GROUP, call(0), end(0), call(1), end(1))},
    "deepspeed-comms": lambda folder: {"train.log": DEEPSPEED.read_bytes()},
    "megatron-log": lambda folder: {"train.log": MEGATRON.read_bytes()},
    "rccl-recorder": lambda folder: {"job.1275.node00.json": RCCL.read_bytes()},
    "torchcomms-log": lambda folder: {"clog.log": TORCHCOMMS.read_bytes()},
    "tracelens": lambda folder: {"nccl_long.csv": TRACELENS.read_bytes()},
    "inspector": lambda folder: {"a.log": lines(record(0), record(1)).encode()},
    "network": lambda folder: {
        "n.jsonl": text(NETWORK, [10**9, {"eth0.tx_bytes": 5}], [2 * 10**9, {"eth0.tx_bytes": 9}])
    },
    "run": lambda folder: {"run.json": json.dumps(MANIFEST).encode()},
    "prometheus": lambda folder: {"a.prom": PROMETHEUS},
    "kineto": kineto,
    "flight-recorder": lambda folder: FlightJob(seed=1).files(),
    **{kind: lambda folder, kind=kind: RECORDINGS[kind][1] for kind in RECORDINGS if kind != "chakra-json"},  # type: ignore[misc]
}


def put(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files by name into a folder below this one, and return where they are."""
    (folder / "in").mkdir()
    for name, data in files.items():
        (folder / "in" / name).write_bytes(data)
    return [folder / "in" / name for name in files]
