"""Ranks of model jobs for the tests: forked from one process that has loaded the libraries, each counting its own calls.

Run as a program it takes a folder with ``cells.json``, a list of cells, and writes ``CELL/calls_RANK.json`` for each: a list
of [iteration, phase, role, op, size_bytes, sent_bytes, dtype] in the order of the calls, beside the job's ``rank_RANK.json``.
The counting replaces the kernels of c10d in the dispatcher, below everything that issues collectives.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPS = {
    "allreduce_": "all-reduce", "allreduce_coalesced_": "all-reduce", "broadcast_": "broadcast",
    "allgather_": "all-gather", "_allgather_base_": "all-gather", "allgather_into_tensor_coalesced_": "all-gather",
    "reduce_scatter_": "reduce-scatter", "_reduce_scatter_base_": "reduce-scatter", "reduce_": "reduce",
    "reduce_scatter_tensor_coalesced_": "reduce-scatter", "alltoall_": "all-to-all", "alltoall_base_": "all-to-all",
    "gather_": "gather", "scatter_": "scatter", "send": "send", "recv_": "recv", "barrier": "barrier",
}  # fmt: skip
SENT_FIRST = {"all-reduce", "broadcast", "send", "reduce"}
MOST_S = 40.0
# A Library takes its kernels with it when it goes. Tensors are kept for another reason: call_boxed holds the interpreter's
# lock, and a thread of gloo that drops the last reference to a tensor would wait for it while it holds gloo's own lock.
KEPT: list[Any] = []


def nbytes(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    if isinstance(value, list | tuple):
        return sum(nbytes(each) for each in value)
    return 0


def sizes(name: str, args: tuple[Any, ...], size_of_group: int) -> tuple[int, int]:
    """Return (size, sent) bytes of a call; size is the larger of what goes in and what comes out."""
    op = OPS[name]
    if op == "barrier":
        return 0, 0
    if op == "recv":
        return nbytes(args[0]), 0
    if op in SENT_FIRST:
        return nbytes(args[0]), nbytes(args[0])
    received, sent = nbytes(args[0]), nbytes(args[1])
    if name == "allgather_":
        sent = received // size_of_group
    return max(received, sent), sent


def row(name: str, args: tuple[Any, ...]) -> list[Any]:
    import torch
    from torch._C._distributed_c10d import ProcessGroup

    from ringwright.execute.models.label import NOW

    group = next(each for each in args if isinstance(each, torch.ScriptObject))
    group = ProcessGroup.unbox(group)
    size, sent = sizes(name, args, group.size())
    return [NOW.iteration, NOW.phase, group.group_desc.removeprefix("mesh_"), OPS[name], size, sent]


def watch(key: str, into: list[list[Any]]) -> None:
    """Count every call that reaches c10d on this dispatch key."""
    import torch

    library = torch.library.Library("c10d", "IMPL")
    KEPT.append(library)
    for name in OPS:
        try:
            kernel = torch.library.get_kernel(f"c10d::{name}", key)
        except Exception:  # noqa: BLE001, S112 - this build has no such kernel
            continue
        library.impl(name, _counted(name, kernel, into), key, with_keyset=True, allow_override=True)


def _counted(name: str, kernel: Any, into: list[list[Any]]) -> Callable[..., Any]:
    def counted(keyset: Any, *args: Any) -> Any:
        into.append(row(name, args))
        KEPT.append(args)
        return kernel.call_boxed(keyset, *args)

    return counted


def rank(cell: dict[str, Any], folder: Path, number: int, world: int) -> None:
    """Be one rank of a cell and write what was called and found."""
    from dataclasses import asdict

    from ringwright.execute.models.job import run
    from ringwright.execute.models.spec import read

    os.environ.update(RANK=str(number), WORLD_SIZE=str(world))
    calls: list[list[Any]] = []
    watch("CPU", calls)
    done = run(read({**cell, "store": str(folder / "store")}))
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
    import torch.distributed

    warnings.simplefilter("ignore")  # that kernels are replaced is meant
    torch.set_num_threads(1)
    cells = json.loads((folder / "cells.json").read_text())
    if any(cell["model"] not in ("resnet", "vgg") for cell in cells):
        import transformers.models.bert.modeling_bert
        import transformers.models.deepseek_v3.modeling_deepseek_v3
        import transformers.models.gpt2.modeling_gpt2
        import transformers.models.llama.modeling_llama
        import transformers.models.mixtral.modeling_mixtral
    for number, cell in enumerate(cells):
        world = cell.pop("world")
        began = time.monotonic()
        good = start(cell, folder / str(number), world)
        print(number, cell["model"], cell["parallel"], good, f"{time.monotonic() - began:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
