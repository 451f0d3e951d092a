"""Starts the daemon, learns its holders' process numbers, and runs commands inside the namespaces."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InfeasibleError

SETUP_S = 20.0
END_S = 5.0
TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
ROOTLESS = "RINGWRIGHT_LAB_ROOTLESS"
PROGRAMS = Path(__file__).parent
ENTER = (sys.executable, "-I", "-S", str(PROGRAMS / "enter.py"))


@dataclass(frozen=True)
class Inside:
    """The way into one namespace, named by a process that holds it."""

    name: str
    pid: int
    rootless: bool
    cwd: str

    @property
    def network_command(self) -> tuple[str, ...]:
        """What stands before ``ip`` and ``tc``: the network namespace alone."""
        user = ("-U", "--preserve-credentials") if self.rootless else ()
        return ("nsenter", "-t", str(self.pid), *user, "-n", "--")

    @property
    def command(self) -> tuple[str, ...]:
        """What stands before a program that lives inside: it ends with its parent here, and with the lab."""
        return (*ENTER, str(self.pid), "1" if self.rootless else "0", self.cwd)

    @property
    def hop(self) -> tuple[str, ...]:
        """What stands before a program that a process of another node starts here, by the numbers that hold inside."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        return (*ENTER, numbers.split()[-1], "0", self.cwd)


class NamespaceDaemon:
    """The process that holds all namespaces; ``close`` ends everything inside."""

    def __init__(
        self, nodes: Sequence[tuple[str, list[tuple[str, str]]]], folder: Path, *, rootless: bool, merging: int = 0
    ) -> None:
        """``nodes``: name and sysctls of each, the first ``merging`` merge what they receive; ``folder`` holds ``hosts``.

        The folder is removed at the end.
        """
        self._rootless = rootless
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        lab = os.pidfd_open(os.getpid())
        plan = {"nodes": [{"name": name, "sysctls": sysctls} for name, sysctls in nodes], "rootless": rootless}
        plan["merging"] = [*range(merging)]
        (folder / "plan.json").write_text(json.dumps(plan))
        program = [sys.executable, "-I", "-S", str(PROGRAMS / "namespace_daemon.py")]
        command = [*program, str(folder), str(theirs.fileno()), str(lab)]
        try:
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(), lab), start_new_session=True, stdin=subprocess.DEVNULL
            )
        finally:
            theirs.close()
            os.close(lab)
        self.inside: list[Inside] = []
        try:
            told = self._told("node", len(nodes))
        except BaseException:
            self.close()
            raise
        cwd = str(Path.cwd())
        self.inside = [Inside(name, told[number], rootless, cwd) for number, (name, _) in enumerate(nodes)]

    @property
    def pid(self) -> int:
        """Process number of the daemon's starter, which lives as long as the daemon."""
        return self._process.pid

    def _told(self, word: str, count: int) -> dict[int, int]:
        """Return the process number of each node that has said a word; raise InfeasibleError where one says what failed."""
        numbers: dict[int, int] = {}
        end_s = time.monotonic() + SETUP_S
        while len(numbers) < count:
            self._channel.settimeout(max(0.01, end_s - time.monotonic()))
            try:
                data, ancillary, _, _ = self._channel.recvmsg(65536, socket.CMSG_SPACE(12))
            except TimeoutError:
                data = b""
            message: dict[str, Any] = json.loads(data) if data else {"error": "the namespaces' daemon does not answer"}
            if "error" in message:
                raise refusal(message["error"], rootless=self._rootless)
            for _, kind, value in ancillary:
                if kind == socket.SCM_CREDENTIALS and word in message:
                    numbers[message[word]] = struct.unpack("3i", value[:12])[0]
        return numbers

    def dress(self) -> None:
        """Have every holder take the offloads off its interfaces, now that they are there."""
        self._channel.send(b"go")
        self._told("dressed", len(self.inside))

    def close(self) -> None:
        """End every process inside, and with them the namespaces."""
        self._channel.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                self._process.kill()  # its child, the first process inside, dies with it
            self._process.wait()


def refusal(why: str, *, rootless: bool) -> InfeasibleError:
    """Return the error of a machine that does not give namespaces."""
    if rootless:
        remedy = "run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000"
    else:
        remedy = f"{ROOTLESS}=1 ringwright lab ..., or a container with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    return InfeasibleError("this machine does not let a lab make network namespaces", where=why, remedy=remedy)


def check_tools() -> None:
    """Raise InfeasibleError where a program is missing that the lab needs."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        packages = " ".join(sorted({TOOLS[name] for name in missing}))
        raise InfeasibleError(f"the lab needs {', '.join(missing)}", remedy=f"apt-get install {packages}")


def is_rootless() -> bool:
    """Whether namespaces are made as a plain user, or as root who was asked to behave like one."""
    return os.geteuid() != 0 or os.environ.get(ROOTLESS, "") not in ("", "0")


def batches(work: Iterable[tuple[Inside, str, Sequence[str]]]) -> None:
    """Run ``ip`` or ``tc`` with lines in several namespaces at once; raise InfeasibleError with the first complaint."""
    running = []
    for inside, tool, lines in work:
        if lines:
            command = [*inside.network_command, tool, "-batch", "-"]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            running.append((inside, tool, lines, process))
    failed = ""
    for inside, tool, lines, process in running:
        try:
            _, complaint = process.communicate("\n".join(lines) + "\n", timeout=SETUP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, complaint = process.communicate()
        if process.returncode and not failed:
            failed = f"{tool} in {inside.name}: {' '.join(complaint.split())[:300]}"
    if failed:
        raise InfeasibleError("the lab's network could not be set up", where=failed, remedy="ringwright lab --list")


def queues(inside: Inside) -> dict[str, int]:
    """Return the frames that the queue of each interface has dropped; raise InfeasibleError where ``tc`` does not tell."""
    command = [*inside.network_command, "tc", "-s", "-j", "qdisc", "show"]
    try:
        told = subprocess.run(command, capture_output=True, check=True, timeout=SETUP_S).stdout
        rows = json.loads(told or b"[]")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InfeasibleError("the queues cannot be asked", where=f"{inside.name}: {error}") from error
    return {row["dev"]: int(row.get("drops", 0)) for row in rows if row.get("kind") == "htb"}
