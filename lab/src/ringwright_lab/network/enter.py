"""Runs a command inside a node: a program of its own that needs nothing but the standard library.

``enter.py PID USER FOLDER COMMAND...`` enters the namespaces of a holder (``USER`` 1: its user namespace too), goes to the folder
and runs the command there. It stays outside as the command's parent: it passes signals on, ends as the command ends, and when it
is killed the command is killed with it. Unlike nsenter it does not stop when the command is stopped: a stopped parent could
not reap its child when a lab is killed, and one process that is not reaped keeps all the namespaces alive.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

libc = ctypes.CDLL(None, use_errno=True)


def enter(pid: str, *, user: bool) -> None:
    """Enter the namespaces of a process; raise OSError where one does not open."""
    names = (["user"] if user else []) + ["ipc", "uts", "net", "pid", "mnt"]
    for number in [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]:
        if libc.setns(number, 0):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        os.close(number)


def become(folder: str, command: list[str]) -> NoReturn:
    """Be the command."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.chdir(folder)
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def main() -> NoReturn:
    """Enter, run, and end as the command did."""
    pid, user, folder, *command = sys.argv[1:]
    try:
        enter(pid, user=user == "1")
    except OSError as error:
        print(f"the lab has ended: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(126)
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)  # none is lost between the fork and the next lines
    child = os.fork()
    if not child:
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        become(folder, command)
    for number in PASSED_ON:
        signal.signal(number, lambda got, _: os.kill(child, got))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


if __name__ == "__main__":
    main()
