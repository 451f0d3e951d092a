"""What the host's network counted while the job ran: one file per host, a line a second where something moved.

TCP retransmissions and timeouts, bytes, drops and errors of each interface, carrier changes, and InfiniBand port
counters where there
are any: the signs by which a lossy link, a flapping port or other traffic are told from a slow rank. Sources: proc(5) (net/snmp,
net/netstat, net/dev), sysfs-class-net, sysfs-class-infiniband of the kernel's documentation.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
from typing import Any

FORMAT = "network/1"
LOOK_S = 1.0
_TCP = {"snmp": ("OutSegs", "RetransSegs"), "netstat": ("TCPTimeouts", "TCPLossProbes", "TCPSynRetrans")}
_DEV = {"rx_bytes": 0, "rx_errors": 2, "rx_dropped": 3, "tx_bytes": 8, "tx_errors": 10, "tx_dropped": 11}
_PORT = (
    "port_rcv_data",
    "port_xmit_data",
    "port_xmit_wait",
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "local_ack_timeout_err",
    "out_of_sequence",
    "packet_seq_err",
    "np_cnp_sent",
)


def start(job: Any, rank: int) -> None:
    """Look at the counters from now on, in a thread of its own."""
    host = socket.gethostname()
    name = os.path.join(job.folder, "network.%s.%d.jsonl" % (host, os.getpid()))  # noqa: PTH118
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    file = os.open(name, flags, 0o600)
    head = {"ringwright": FORMAT, "host": host, "pid": os.getpid(), "rank": rank}
    head.update(wall_ns=time.time_ns(), clock_ns=time.monotonic_ns())
    _line(file, head)
    atexit.register(_last, file, os.getpid())
    threading.Thread(target=_watch, args=(file, os.getpid()), name="ringwright-network", daemon=True).start()


def _watch(file: int, pid: int) -> None:
    wake, last = threading.Event(), None
    while os.getpid() == pid:
        counters = look()
        if counters != last:
            last = counters
            if not _line(file, [time.monotonic_ns(), counters]):
                return
        wake.wait(LOOK_S)


def _last(file: int, pid: int) -> None:
    """Look once more at the end, so that the last second is counted too."""
    if os.getpid() == pid:
        _line(file, [time.monotonic_ns(), look()])


def _line(file: int, value: Any) -> bool:
    try:
        data = (json.dumps(value, separators=(",", ":")) + "\n").encode()
        return os.write(file, data) == len(data)
    except OSError:
        return False


def look() -> dict[str, int]:
    """Return the counters now, by name: ``tcp.RetransSegs``, ``eth0.rx_bytes``, ``mlx5_0/1.symbol_error``."""
    counters: dict[str, int] = {}
    for look_at in (_tcp, _interfaces, _ports):
        try:
            look_at(counters)
        except (OSError, ValueError, IndexError):
            continue  # another kernel, or nothing of that kind here
    return counters


def _tcp(counters: dict[str, int]) -> None:
    for name, wanted in _TCP.items():
        with open("/proc/self/net/" + name) as file:  # noqa: PTH123
            lines = file.read().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):  # noqa: B905 - Python 3.8 has no strict
            if names.startswith("Tcp"):
                table = dict(zip(names.split()[1:], values.split()[1:]))  # noqa: B905
                counters.update({"tcp." + each: int(table[each]) for each in wanted if each in table})


def _interfaces(counters: dict[str, int]) -> None:
    with open("/proc/self/net/dev") as file:  # noqa: PTH123
        lines = file.read().splitlines()[2:]
    for line in lines:
        name, _, rest = line.partition(":")
        name, values = name.strip(), rest.split()
        if name == "lo" and len(lines) > 1:
            continue
        counters.update({"%s.%s" % (name, what): int(values[column]) for what, column in _DEV.items()})
        changes = _number("/sys/class/net/%s/carrier_changes" % name)
        if changes is not None:
            counters[name + ".carrier_changes"] = changes


def _ports(counters: dict[str, int]) -> None:
    root = "/sys/class/infiniband"
    for nic in sorted(os.listdir(root)):  # noqa: PTH208
        for port in sorted(os.listdir("%s/%s/ports" % (root, nic))):  # noqa: PTH208
            for what in _PORT:
                for kind in ("counters", "hw_counters"):
                    value = _number("%s/%s/ports/%s/%s/%s" % (root, nic, port, kind, what))
                    if value is not None:
                        counters["%s/%s.%s" % (nic, port, what)] = value


def _number(path: str) -> int | None:
    try:
        with open(path) as file:  # noqa: PTH123
            return int(file.read())
    except (OSError, ValueError):
        return None
