"""Holds the namespaces of a lab: a program of its own that needs nothing but the standard library.

It makes a PID namespace whose first process it is, and forks one holder per node; each holder takes a network, mount, host
name and IPC namespace. None has a name in the file system: they live as long as their processes. When the lab ends, however
it ends, its process descriptor becomes readable here; the daemon leaves, and the kernel ends whatever still runs inside and
with it every namespace and interface.

``daemon.py FOLDER SOCKET LAB``: the folder holds ``hosts`` and ``plan.json`` (``nodes``: name and sysctls of each;
``rootless``, ``merging``: numbers of nodes that merge what they receive) and is removed at the end; the others are numbers of
inherited descriptors. Holders introduce themselves over the socket with their credentials, which the kernel translates into the
lab's process numbers.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_PRIVATE_ALL = 0x1000, 0x44000
PR_SET_PDEATHSIG = 1
SIOCETHTOOL = 0x8946
# Segmentation, receive merging and checksums of the card, each switched off: a frame on the wire is a packet of the host.
OFFLOADS = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C, "tx": 0x17, "sg": 0x19}
GRO = OFFLOADS["gro"]

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    """Raise OSError with the call's name where a C call failed."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int, what: str) -> None:
    """Leave some namespaces for new ones."""
    checked(libc.unshare(flags), f"a {what} namespace")


def mount(kind: str, source: str, target: str, flags: int = 0) -> None:
    """Mount; raise OSError where that is not allowed."""
    checked(libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount {target}")


def main() -> NoReturn:
    """Make the namespaces and hold them until the lab ends."""
    folder, channel = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    plan = {**json.loads((folder / "plan.json").read_text()), "folder": sys.argv[1], "lab": int(sys.argv[3])}
    try:
        if plan["rootless"]:
            become_root()
        unshare(NEWPID | NEWNS | NEWNET | NEWIPC, "PID, mount, network and IPC")
        child = os.fork()
    except OSError as error:
        channel.send(json.dumps({"error": str(error)}).encode())
        os._exit(1)
    if not child:
        keep(plan, channel)
    channel.close()
    os.waitpid(child, 0)
    os._exit(0)


def become_root() -> None:
    """Enter a user namespace in which this user is root."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEWUSER, "user")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def keep(plan: dict[str, Any], channel: socket.socket) -> NoReturn:
    """Be the first process of the PID namespace: fork the holders, then wait for the lab's end."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of ranks are reaped without being waited for
    try:
        mount("none", "none", "/", MS_PRIVATE_ALL)
        attempt("proc", "proc", "/proc")
        go, starter = os.pipe()
        for number in range(len(plan["nodes"])):
            if not os.fork():
                os.close(starter)
                hold(plan, number, channel, go)
        os.close(go)
        wait(channel, plan["lab"], starter)
    except OSError as error:
        tell(channel, error=str(error))
    shutil.rmtree(plan["folder"], ignore_errors=True)  # a killed lab cannot
    with suppress(OSError):  # other labs live
        Path(plan["folder"]).parent.rmdir()
    os._exit(0)


def wait(channel: socket.socket, lab: int, starter: int) -> None:
    """Return when the lab has closed its end or is gone; its first word sends the holders on."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(lab, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if lab in ready:
            return
        if channel.fileno() in ready:
            if not channel.recv(4096):
                return
            os.close(starter)  # every holder reads the end of this pipe


def hold(plan: dict[str, Any], number: int, channel: socket.socket, go: int) -> NoReturn:
    """Be a node: take its namespaces, say so, take the offloads off its interfaces when they are there, and stay."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    node = plan["nodes"][number]
    try:
        unshare(NEWNET | NEWNS | NEWUTS | NEWIPC, "network, mount, UTS and IPC")
        socket.sethostname(node["name"])
        mount("none", "none", "/", MS_PRIVATE_ALL)
        attempt("sysfs", "sysfs", "/sys")  # so that /sys/class/net shows this node's interfaces
        attempt("tmpfs", "tmpfs", "/dev/shm")  # noqa: S108 (nodes do not share memory, and none stays behind)
        attempt("none", f"{plan['folder']}/hosts", "/etc/hosts", MS_BIND)
        for name, value in node["sysctls"]:
            Path(f"/proc/sys/net/{name}").write_text(value)
        tell(channel, node=number)
        os.read(go, 1)
        for _, name in socket.if_nameindex():
            if name != "lo":
                without_offloads(name, merging=number in plan["merging"])
        tell(channel, dressed=number)
    except OSError as error:
        tell(channel, error=f"{node['name']}: {error}")
    channel.close()
    os.close(plan["lab"])
    while True:
        signal.pause()


def attempt(kind: str, source: str, target: str, flags: int = 0) -> None:
    """Mount what makes a node look more like a host; where a container forbids it, the lab goes on without."""
    try:
        mount(kind, source, target, flags)
    except OSError:
        return


def without_offloads(name: str, *, merging: bool) -> None:
    """Switch segmentation, merging and checksums of an interface off, or else 64 KiB frames blur loss and rates.

    ``merging``: switch that on instead, for only then does a veth take what XDP at its other end sends.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, merging and command == GRO))
            request = struct.pack("16sP", name.encode(), ctypes.addressof(value))
            try:
                fcntl.ioctl(control, SIOCETHTOOL, request)
            except OSError:
                continue  # a bridge has some of them fixed; its ports do not


def tell(channel: socket.socket, **words: object) -> None:
    """Send one message to the lab."""
    channel.send(json.dumps(words).encode())


if __name__ == "__main__":
    main()
