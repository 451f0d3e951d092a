"""``adds.c`` for the kernel's virtual machine: compiled where it runs, nothing is kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ringwright.ground.errors import InfeasibleError

SOURCE = Path(__file__).with_name("adds.c")
COMPILER = "clang"
FLAGS = ("-O2", "-g", "-target", "bpf", "-Wall", "-Wextra")  # -g: the kernel wants to know where a lock lies
WITHOUT = "or the same without XDP, in a program on a socket"


def no_xdp(why: str, *, where: str = "", remedy: str) -> InfeasibleError:
    """Return the error of a machine on which the kernel cannot add."""
    return InfeasibleError(f"no XDP: {why}", where=where, remedy=f"{remedy}; {WITHOUT}")


def image() -> bytes:
    """Return the program as an object file; InfeasibleError where there is no compiler, or one that cannot."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise no_xdp(f"{COMPILER}, which compiles for the kernel, is missing", remedy="apt-get install clang")
    done = subprocess.run(
        [compiler, *FLAGS, "-c", str(SOURCE), "-o", "-"], capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode or not done.stdout:
        lines = done.stderr.decode(errors="replace").splitlines()
        words = next((line for line in lines if "error" in line), " ".join(lines)[:300])
        raise no_xdp(f"the compiler failed: {words}", where=compiler, remedy="clang --version: 14 was tried")
    return done.stdout
