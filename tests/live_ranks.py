"""Runs cases of ``live_cases`` on forked gloo ranks, one after another; PyTorch is loaded once, for other tests too.

A program, which is a fork itself: ``live_ranks FOLDER CASE:WORLD ...`` writes ``FOLDER/CASE.json``, a list of what each rank answered: a value, or
{"error": class, "text": message}, or {"code": exit code} for a rank that wrote nothing.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from forked_ranks import Forks
from patience import HANG_S

HERE = Path(__file__).resolve().parent


def ranks(folder: Path, *cases: str) -> dict[str, list[Any]]:
    """Return what the ranks of each case (``name:world``) answered; everything is killed after a while."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)]),
        "OMP_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-m", "live_ranks", str(folder), *cases]
    with (folder / "said").open("wb") as said:
        process = Forks.Popen(argv, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            process.wait(20 + HANG_S * len(cases))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        raise AssertionError((folder / "said").read_text()[-4000:])
    return {
        name: json.loads((folder / f"{name}.json").read_text()) for name in (case.partition(":")[0] for case in cases)
    }


def main() -> int:
    import torch._dynamo  # optimisers load it, which takes as long as all else: once, not in every rank of every case

    import live_cases

    assert torch._dynamo
    gc.freeze()  # a search for garbage would copy all of it into every rank
    folder = Path(sys.argv[1])
    for case in sys.argv[2:]:
        name, _, world = case.partition(":")
        began_s = time.monotonic()
        pids = {}
        for rank in range(int(world)):
            pid = os.fork()
            if not pid:
                be(live_cases, folder, name, rank, int(world))
            pids[pid] = rank
        codes = wait(folder, name, pids)
        found = []
        for rank in range(int(world)):
            path = folder / f"{name}-{rank}.json"
            found.append(json.loads(path.read_text()) if path.exists() else {"code": codes[rank]})
        (folder / f"{name}.json").write_text(json.dumps(found))
        print(f"{name} took {time.monotonic() - began_s:.1f} s", flush=True)
    return 0


def be(cases: Any, folder: Path, name: str, rank: int, world: int) -> None:
    import traceback

    try:
        answer = cases.run(name, rank, world, str(folder / f"{name}-store"))
    except Exception as error:  # noqa: BLE001 - the test reads it
        traceback.print_exc()
        answer = {"error": type(error).__name__, "text": str(error)}
    partial = folder / f"{name}-{rank}.part"
    partial.write_text(json.dumps(answer))
    partial.rename(folder / f"{name}-{rank}.json")
    if "error" not in (answer if isinstance(answer, dict) else {}):
        stay(folder, name, world)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def stay(folder: Path, name: str, world: int) -> None:
    """Keep this rank's connections until each rank has answered or ended.

    A rank that ends closes its sockets: on a busy machine another may still be reading the last of what both exchanged.
    """
    until = time.monotonic() + HANG_S
    while not ended(folder, name, world) and time.monotonic() < until:
        time.sleep(0.01)


def ended(folder: Path, name: str, world: int) -> bool:
    return all(any((folder / f"{name}-{rank}.{end}").exists() for end in ("json", "ended")) for rank in range(world))


def wait(folder: Path, name: str, pids: dict[int, int]) -> dict[int, int]:
    codes: dict[int, int] = {}
    until = time.monotonic() + HANG_S
    while len(codes) < len(pids):
        for pid, rank in pids.items():
            if rank not in codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    (folder / f"{name}-{rank}.ended").touch()
                elif time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return codes


if __name__ == "__main__":
    sys.exit(main())
