"""What the ranks of test_mpi_runtime.py do; rank 0 prints one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from ringwright.execute.mpi_native import native
from ringwright.execute.mpi_wire import MpiWire
from ringwright.ground.errors import DeclinedError

COMM = MPI.COMM_WORLD
ME, P = COMM.rank, COMM.size


def hello() -> dict[str, Any]:
    found = COMM.allgather((ME, MPI.Get_library_version().splitlines()[0]))
    return {"ranks": [rank for rank, _ in found], "libraries": [library for _, library in found]}


# ------------------------------------------------------------------------------------------------------------- collectives
class Check:
    """Runs a collective twice on the same buffers and compares with what NumPy says."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.checked = 0

    def __call__(self, what: str, expected: np.ndarray | None, send: Any, receive: Any, **how: Any) -> None:
        op = what.split(maxsplit=1)[0]
        before = None if receive is None else receive.copy()
        run = native(COMM, op, send, receive, **how)
        for _ in range(2):
            if receive is not None:
                receive[:] = before
            run()
        good = expected is None or np.array_equal(receive, expected)
        self.checked += 1
        if not COMM.allreduce(good, MPI.LAND):
            self.wrong.append(what)


def of(rank: int, n: int, kind: Any = np.float32) -> np.ndarray:
    return ((np.arange(n) * 7 + rank * 3) % 5 + 1).astype(kind)


def checked_reductions(check: Check) -> None:
    n, everyone = 4 * P, [of(rank, 4 * P) for rank in range(P)]
    total = np.sum(everyone, axis=0)
    for reduce_op, expected in {
        "sum": total,
        "max": np.max(everyone, axis=0),
        "min": np.min(everyone, axis=0),
        "prod": np.prod(everyone, axis=0),
        "avg": (total / P).astype(np.float32),
    }.items():
        check(f"all-reduce {reduce_op}", expected, of(ME, n), np.zeros(n, np.float32), reduce_op=reduce_op)
    check("all-reduce in place", total, None, of(ME, n))
    for kind in ("float16", "int64", "uint8", "float64"):
        expected = np.sum([of(rank, n, kind) for rank in range(P)], axis=0, dtype=kind)
        check(f"all-reduce {kind}", expected, of(ME, n, kind), np.zeros(n, kind), dtype=kind)
    mine, root = slice(4 * ME, 4 * ME + 4), P - 1
    check("reduce-scatter", total[mine], of(ME, n), np.zeros(4, np.float32))
    check("reduce-scatter-block", total[mine], of(ME, n), np.zeros(4, np.float32))
    counts = [3 + rank for rank in range(P)]
    begin, size = sum(counts[:ME]), sum(counts)
    total_v = np.sum([of(rank, size) for rank in range(P)], axis=0)[begin : begin + counts[ME]]
    check("reduce-scatter counts", total_v, of(ME, size), np.zeros(counts[ME], np.float32), counts=counts)
    check("reduce", total if root == ME else None, of(ME, n), np.zeros(n, np.float32), root=root)
    check("reduce in place", total if root == ME else None, None, of(ME, n), root=root)


def checked_moves(check: Check) -> None:
    n, root = 5, P - 1
    gathered = np.concatenate([of(rank, n) for rank in range(P)])
    check("all-gather", gathered, of(ME, n), np.zeros(n * P, np.float32))
    own = np.zeros(n * P, np.float32)
    own[n * ME : n * ME + n] = of(ME, n)
    check("all-gather in place", gathered, None, own.copy())
    halves = gathered.astype(np.uint16)
    check("all-gather bfloat16", halves, of(ME, n, np.uint16), np.zeros(n * P, np.uint16), dtype="bfloat16")
    counts = [2 + 3 * rank for rank in range(P)]
    ragged = np.concatenate([of(rank, count) for rank, count in enumerate(counts)])
    check("all-gather counts", ragged, of(ME, counts[ME]), np.zeros(sum(counts), np.float32), counts=counts)
    check("broadcast", of(root, n), None, of(ME, n), root=root)
    here = root == ME
    check("gather", gathered if here else None, of(ME, n), np.zeros(n * P, np.float32) if here else None, root=root)
    check("gather in place", gathered if here else None, None if here else of(ME, n), own if here else None, root=root)
    into = np.zeros(sum(counts), np.float32) if here else None
    check("gather counts", ragged if here else None, of(ME, counts[ME]), into, root=root, counts=counts)
    check("scatter", of(ME, n), gathered if here else None, np.zeros(n, np.float32), root=root)
    check("scatter in place", None, gathered if here else None, None if here else np.zeros(n, np.float32), root=root)
    into = np.zeros(counts[ME], np.float32)
    check("scatter counts", of(ME, counts[ME]), ragged if here else None, into, root=root, counts=counts)
    check("barrier", None, None, None)
    check(
        "send-recv",
        of(0, n) if ME in {0, P - 1} else None,
        of(0, n) if ME == 0 else None,
        of(0 if ME == 0 else ME, n),
        root=0,
        to=P - 1,
    )


def checked_exchanges(check: Check) -> None:
    n = 3
    expected = np.concatenate([of(rank, n * P)[n * ME : n * ME + n] for rank in range(P)])
    check("all-to-all", expected, of(ME, n * P), np.zeros(n * P, np.float32))
    rows = [[(src + 2 * dst) % 4 for dst in range(P)] for src in range(P)]
    ends = [np.cumsum([0, *row]) for row in rows]
    expected = np.concatenate([of(src, sum(rows[src]))[ends[src][ME] : ends[src][ME + 1]] for src in range(P)])
    check("all-to-all counts", expected, of(ME, sum(rows[ME])), np.zeros(len(expected), np.float32), counts=rows)


def collectives() -> dict[str, Any]:
    check, declined = Check(), []
    for part in (checked_reductions, checked_moves, checked_exchanges):
        part(check)
    try:
        native(COMM, "all-reduce", None, np.zeros(4, np.uint16), dtype="bfloat16")
    except DeclinedError as error:
        declined.append(error.what)
    return {"wrong": check.wrong, "checked": check.checked, "declined": " ".join(declined)}


# ---------------------------------------------------------------------------------------------------------------- messages
SIZES = (0, 1, 5000, 70_001, 1 << 20)


def content(src: int, dst: int, turn: int) -> np.ndarray:
    return ((np.arange(SIZES[turn]) * 31 + src * 101 + dst * 7 + turn) % 251).astype(np.uint8)


def wire() -> dict[str, Any]:
    """Every rank to every other, receives posted last turn first: new requests, then the same prepared, several rounds."""
    line, wrong = MpiWire(waits=os.environ["WAITS"]), []
    pairs = [(peer, turn) for peer in range(P) if peer != ME for turn in range(len(SIZES))]
    out = {(peer, turn): content(ME, peer, turn) for peer, turn in pairs}
    into = {key: np.zeros(SIZES[key[1]], np.uint8) for key in pairs}
    handles = [line.recv(*key, into[key]) for key in reversed(pairs)]
    line.barrier()
    handles += [line.send(*key, out[key]) for key in pairs]
    line.wait_all(handles)
    wrong += [f"{key} test" for key, handle in zip(pairs, handles, strict=False) if not line.test(handle)]
    prepared = [line.prepare_recv(*key, into[key]) for key in pairs] + [
        line.prepare_send(*key, out[key]) for key in pairs
    ]
    for number in range(5):
        wrong += [
            f"{key} round {number}" for key in pairs if not np.array_equal(into[key], content(key[0], ME, key[1]))
        ]
        for array in into.values():
            array[:] = 255
        for message in prepared:
            message.start()
        for message in prepared:
            message.wait()
    line.barrier()
    line.close()
    return {"wrong": [each for found in COMM.allgather(wrong) for each in found], "rounds": 5}


# ------------------------------------------------------------------------------------------------------------------- bytes
def sent_bytes(interface: str) -> int:
    rows = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line]
    return next(int(columns.split()[8]) for name, columns in rows if name.strip() == interface)


def settled() -> int:
    """Return what this rank has sent once nothing is left in a socket."""
    COMM.Barrier()
    time.sleep(0.05)
    return sent_bytes("eth0")


def counted() -> list[float]:
    """How many times the vector each rank sends in one all-reduce, mean of three."""
    data, repeats = np.ones(1 << 18, np.float32), 3
    run = native(COMM, "all-reduce", None, data)
    run()
    before = settled()
    for _ in range(repeats):
        run()
    return COMM.allgather((settled() - before) / repeats / data.nbytes)


TASKS: dict[str, Callable[[], Any]] = {"hello": hello, "native": collectives, "wire": wire, "bytes": counted}

if __name__ == "__main__":
    found = TASKS[sys.argv[1]]()
    if ME == 0:
        print(json.dumps(found), flush=True)
