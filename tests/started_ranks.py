"""Starts ranks of a script as torchrun does, but loads no PyTorch itself: ``started_ranks.py RANKS SCRIPT ARGUMENT ...``.

Where one fails the others are ended, and the exit code is 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

FIRST_PORT, PORTS = 10_000, 20_000  # below those that the system gives to whoever asks for any


def command(script: Path, *arguments: str, ranks: int = 2) -> list[str]:
    """Return the command that starts ranks of a script."""
    return [sys.executable, __file__, str(ranks), str(script), *arguments]


def main() -> int:
    world = int(sys.argv[1])
    around = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(FIRST_PORT + os.getpid() % PORTS),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-u", *sys.argv[2:]],
            env={**os.environ, **around, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]
    while None in (codes := [rank.poll() for rank in ranks]):
        if any(codes):
            for rank in ranks:
                rank.terminate()
        time.sleep(0.02)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
