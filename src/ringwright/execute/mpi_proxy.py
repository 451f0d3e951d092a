"""A proxy between an Open MPI launcher and a rank that runs where the launcher's sockets do not reach.

    python mpi_proxy.py INTERFACE WORDS COMMAND... ARGV...

runs ``COMMAND... ARGV...`` (COMMAND is the first WORDS words, ``nsenter ... --``). A rank finds its launcher at a port of the
loopback, and a network namespace has a loopback of its own. So a socket is opened to listen there, inside, and handed out; the
proxy, which stays outside, passes what comes in on to the launcher. Nothing of the rank's own traffic goes through it, and no
second network is needed.

    python mpi_proxy.py --here ARGV...

becomes ``ARGV...``, a rank that needs no proxy but, like the others, must not outlive its launcher: Open MPI's ranks would,
when it is killed. Only the standard library is imported, since this runs once per rank.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_INTERFACE = "OMPI_MCA_btl_tcp_if_include"
_URI = re.compile(r"(tcp4://)([\d.]+):(\d+)")


def outside(interface: str, prefix: list[str], argv: list[str]) -> int:
    """Start the rank inside, relay for it until it ends, and return its exit status."""
    _die_with_parent()
    here, there = socket.socketpair()
    own = [sys.executable, "-I", os.path.abspath(__file__), "--inside", str(there.fileno()), interface]  # noqa: PTH100
    child = subprocess.Popen([*prefix, *own, *argv], pass_fds=[there.fileno()])
    there.close()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    listener = _taken(here)
    if listener is not None:
        _Relay(listener, here, _launcher()).run()
    status = child.wait()
    return status if status >= 0 else 128 - status


def inside(handover: int, interface: str, argv: list[str]) -> None:
    """Listen where the rank will look for its launcher, hand the socket out, and become the rank."""
    _die_with_parent()
    _raise_loopback()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with socket.socket(fileno=handover) as out:
        out.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])
        listener.close()
        os.set_inheritable(out.fileno(), True)
        out.detach()  # stays open as long as the rank lives: its end tells the proxy
    for name, value in os.environ.items():
        if name.startswith("PMIX_SERVER_URI"):
            os.environ[name] = _URI.sub(rf"\g<1>127.0.0.1:{port}", value)
    os.environ[_INTERFACE] = interface
    os.execvp(argv[0], argv)  # noqa: S606


def _die_with_parent() -> None:
    """Have the kernel end this process, and what it becomes, with the one that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _taken(here: socket.socket) -> socket.socket | None:
    """Return the listening socket that was handed out, or None where the command ended before."""
    room = socket.CMSG_SPACE(array.array("i", [0]).itemsize)
    _, ancillary, _, _ = here.recvmsg(1, room)
    if not ancillary:
        return None
    handles = array.array("i")
    handles.frombytes(ancillary[0][2][: handles.itemsize])
    return socket.socket(fileno=handles[0])


def _launcher() -> tuple[str, int]:
    for name, value in os.environ.items():
        found = _URI.search(value) if name.startswith("PMIX_SERVER_URI") else None
        if found:
            return found.group(2), int(found.group(3))
    raise SystemExit("mpi_proxy: no PMIX_SERVER_URI here; this runs below Open MPI's launcher only")


def _raise_loopback() -> None:
    """Bring the loopback up, as ``ip link set lo up`` does; a fresh namespace has it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", asked)[1]
        if not flags & _IFF_UP:
            fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


class _Relay:
    """Connections to the listener, each passed on to the launcher, until the rank has ended."""

    def __init__(self, listener: socket.socket, rank: socket.socket, launcher: tuple[str, int]) -> None:
        self.listener, self.rank, self.launcher = listener, rank, launcher
        self.selector = selectors.DefaultSelector()
        self.other: dict[socket.socket, socket.socket] = {}
        for each in (listener, rank):
            self.selector.register(each, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the rank's end of the handover closes."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.rank:
                    return
                if key.fileobj is self.listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self.other:
                    self._pass(key.fileobj)

    def _accept(self) -> None:
        inner, _ = self.listener.accept()
        outer = socket.create_connection(self.launcher)
        self.other |= {inner: outer, outer: inner}
        for each in (inner, outer):
            self.selector.register(each, selectors.EVENT_READ)

    def _pass(self, source: socket.socket) -> None:
        target = self.other[source]
        try:
            data = source.recv(1 << 16)
            target.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (source, target):
                self.selector.unregister(each)
                self.other.pop(each)
                each.close()


def main() -> int:
    """Take the side that the arguments name."""
    if sys.argv[1] == "--here":
        _die_with_parent()
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
    if sys.argv[1] == "--inside":
        inside(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    interface, words = sys.argv[1], int(sys.argv[2])
    rest = sys.argv[3:]
    return outside(interface, rest[:words], rest[words:])


if __name__ == "__main__":
    sys.exit(main())
