"""Runs grid points one after another on forked ranks: PyTorch is loaded once, so that each takes about as long as its steps.

A program: it reads a JSON object a line on its input ({"spec", "world", "folder", "environment", "timeout_s"}) and
answers each with
one ({"codes", "took_s", "cpu_s", "is_late"}). Nothing of PyTorch runs before the fork; a rank's output goes to ``rank-N.out``
and ``rank-N.err``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ringwright_lab.models import job

LOOK_S = 0.005
_USED = (
    "torch._dynamo",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch._subclasses.fake_tensor",
    "torch.testing._internal.distributed.fake_pg",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("gpt2", "llama", "bert", "mixtral", "deepseek_v3")),
)
MOST_S = 600.0


def main() -> int:
    """Answer every line until the input ends."""
    preload()
    _answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        world = int(asked["world"])
        ranks = {}
        for rank in range(world):
            child = os.fork()
            if not child:
                return _be(rank, world, asked)  # by way of the interpreter's own end, as any program
            ranks[child] = rank
        _answer(_wait(ranks, float(asked.get("timeout_s") or MOST_S)))
    return 0


def preload() -> None:
    """Import what grid points need, where it is there; a grid point that needs more says so itself."""
    from importlib import import_module

    for name in _USED:
        try:
            import_module(name)
        except ImportError:
            continue


def _answer(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _be(rank: int, world: int, asked: dict[str, Any]) -> int:
    """Be one rank of a grid point."""
    folder = Path(asked["folder"])
    os.environ.update({str(name): str(value) for name, value in asked.get("environment", {}).items()})
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, end in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"rank-{rank}.{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    spec = {**asked["spec"], "store": str(folder / "store"), "out": str(folder)}
    try:
        return job.main([json.dumps(spec)])
    finally:
        sys.stdout.flush()


def _wait(ranks: dict[int, int], timeout_s: float) -> dict[str, Any]:
    """Wait for all ranks; end those that are late, or that wait for a rank that failed."""
    began_s = time.monotonic()
    codes: dict[int, int] = {}
    cpu_s = 0.0
    end_s, is_late = began_s + timeout_s, False
    while len(codes) < len(ranks):
        for child, rank in ranks.items():
            if rank not in codes:
                done, status, used = os.wait4(child, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    cpu_s += used.ru_utime + used.ru_stime
        now_s = time.monotonic()
        if any(codes.values()):
            end_s = min(end_s, now_s + 5.0)
        if now_s > end_s:
            is_late = is_late or not any(codes.values())
            for child, rank in ranks.items():
                if rank not in codes:
                    os.kill(child, signal.SIGKILL)
        time.sleep(LOOK_S)
    took_s = round(time.monotonic() - began_s, 3)
    return {"codes": [codes[rank] for rank in sorted(codes)], "took_s": took_s, "cpu_s": cpu_s, "is_late": is_late}


if __name__ == "__main__":
    raise SystemExit(main())
