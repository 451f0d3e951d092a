"""Ranks of model jobs for the tests: forked from one process that has loaded the libraries, each counting its own calls.

Run as a program it takes a folder with ``cells.json``, a list of cells, and writes ``CELL/calls_RANK.json`` for each: a list
of [iteration, phase, role, op, size_bytes, sent_bytes] in the order of the calls, beside the job's ``rank_RANK.json``.
The counting sits in the dispatcher, below everything that issues collectives.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

OPS = {
    "allreduce_": "all-reduce",
    "broadcast_": "broadcast",
    "allgather_": "all-gather",
    "_allgather_base_": "all-gather",
    "reduce_scatter_": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_": "reduce",
    "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all",
    "gather_": "gather",
    "scatter_": "scatter",
    "send": "send",
    "recv_": "recv",
    "barrier": "barrier",
}
FUNCTIONAL = {
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "broadcast": "broadcast",
}
KNOWN_QUIET = {"wait_tensor", "_wrap_tensor_autograd"}
ONE_BUFFER = {"all-reduce", "broadcast", "send", "reduce"}
MOST_S = float(os.environ.get("MODEL_RANKS_MOST_S", "180"))


def nbytes(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    if isinstance(value, list | tuple):
        return sum(nbytes(each) for each in value)
    return 0


def sizes(op: str, name: str, args: tuple[Any, ...], ranks: int) -> tuple[int, int]:
    """Return (size, sent) bytes of a call of c10d; size is the larger of what goes in and what comes out."""
    if op == "barrier":
        return 0, 0
    if op == "recv":
        return nbytes(args[0]), 0
    if op in ONE_BUFFER:
        return nbytes(args[0]), nbytes(args[0])
    received, sent = nbytes(args[0]), nbytes(args[1])
    if name == "allgather_":
        sent = received // ranks
    return max(received, sent), sent


def functional_sizes(op: str, args: tuple[Any, ...], ranks: int) -> tuple[int, int]:
    """Return the same of a functional collective."""
    sent = nbytes(args[0])
    if op == "all-gather":
        return sent * ranks, sent
    if op == "all-to-all" and args[0].shape[0]:
        return max(sent, sent // args[0].shape[0] * sum(args[1])), sent
    return sent, sent


def row(func: Any, args: tuple[Any, ...]) -> list[Any] | None:
    """Return what is written down about a call; None for what is no collective; KeyError for one that is not known here."""
    import torch
    from torch._C._distributed_c10d import ProcessGroup
    from torch.distributed.distributed_c10d import _resolve_process_group

    from ringwright_lab.models.label import NOW

    room, name = func._schema.name.split("::")
    if room not in ("c10d", "_c10d_functional", "_c10d_functional_autograd") or name in KNOWN_QUIET:
        return None
    if room == "c10d":
        group = ProcessGroup.unbox(next(each for each in args if isinstance(each, torch.ScriptObject)))
        found = sizes(OPS[name], name, args, group.size())
        op = OPS[name]
    else:
        op, group = FUNCTIONAL[name], _resolve_process_group(args[-1])
        found = functional_sizes(op, args, group.size())
    return [NOW.iteration, NOW.phase, group.group_desc.removeprefix("mesh_"), op, *found]


def watching(into: list[list[Any]]) -> Any:
    """Return a context in which every collective is written down; it sees shapes only, and works on fake tensors too.

    A dispatch mode and not another kernel: a kernel would call the original one with the interpreter's lock held, and
    wait for gloo's lock while a thread of gloo that drops a tensor waits for the interpreter's.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(each.__name__ in ("DTensor", "AsyncCollectiveTensor") for each in types):
                return NotImplemented
            found = row(func, args)
            if found is not None:
                into.append(found)
            return func(*args, **(kwargs or {}))

    return Counting()


def rank(cell: dict[str, Any], folder: Path, number: int, world: int) -> None:
    """Be one rank of a cell and write what was called and found."""
    from dataclasses import asdict

    from ringwright_lab.models.job import run
    from ringwright_lab.models.spec import read_spec

    os.environ.update(RANK=str(number), WORLD_SIZE=str(world))
    calls: list[list[Any]] = []
    with watching(calls):
        done = run(read_spec({**cell, "store": str(folder / "store")}))
    (folder / f"calls_{number}.json").write_text(json.dumps(calls))
    (folder / f"rank_{number}.json").write_text(json.dumps(asdict(done)))


def start(cell: dict[str, Any], folder: Path, world: int) -> bool:
    """Run one cell; return whether all ranks came to their end."""
    folder.mkdir()
    children = []
    for number in range(world):
        child = os.fork()
        if not child:
            code = 1
            try:
                rank(cell, folder, number, world)
                code = 0
            except BaseException:  # noqa: BLE001 - written down for the test that started it
                (folder / f"error_{number}.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        children.append(child)
    return wait(children)


def wait(children: list[int]) -> bool:
    """Wait for all, but no longer than MOST_S, and not once one has failed."""
    left, good, until = set(children), True, time.monotonic() + MOST_S
    while left and good and time.monotonic() < until:
        for child in list(left):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                left.remove(child)
                good = good and status == 0
        time.sleep(0.005)
    time.sleep(0.2 if left else 0)  # the others may still write down why
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return good and not left


def main(folder: Path) -> int:
    import torch

    from ringwright_lab.models.worker import preload

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    preload()
    gc.freeze()  # a search for garbage would copy all of it into every rank
    cells = json.loads((folder / "cells.json").read_text())
    for number, cell in enumerate(cells):
        world = cell.pop("world")
        began = time.monotonic()
        good = start(cell, folder / str(number), world)
        print(number, cell["model"], cell["parallel"], good, f"{time.monotonic() - began:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
