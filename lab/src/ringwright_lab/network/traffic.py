"""The two ends of a competing TCP flow: a program of its own that needs nothing but the standard library.

``traffic.py sink ADDRESS PORT`` swallows what comes. ``traffic.py send ADDRESS PORT RATE`` connects, says ``ready``, waits for
a line on standard input, then sends ``RATE`` bytes/s (0: what TCP gives) until standard input ends.
"""

from __future__ import annotations

import select
import socket
import sys
import time

BLOCK = bytes(1 << 16)


def sink(address: str, port: int) -> None:
    """Take one flow and swallow it."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        flow, _ = server.accept()
        with flow:
            while flow.recv(1 << 20):
                pass


def send(address: str, port: int, rate: float) -> None:
    """Send when told to, at a rate in bytes/s, until told to end."""
    with socket.create_connection((address, port), timeout=20.0) as flow:
        flow.settimeout(None)
        flow.setblocking(False)
        print("ready", flush=True)
        sys.stdin.readline()
        began_s, sent = time.monotonic(), 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            ahead_s = sent / rate - (time.monotonic() - began_s) if rate else 0.0
            if ahead_s > 0:
                time.sleep(min(ahead_s, 0.05))
            elif select.select([], [flow], [], 0.05)[1]:
                sent += flow.send(BLOCK[: max(1448, int(rate / 50))] if rate else BLOCK)


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
