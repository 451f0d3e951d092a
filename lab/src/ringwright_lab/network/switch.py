"""A switch in user space, over AF_PACKET: loses, delays, jitters, reorders and marks frames, link by link, by seed.

A program of its own that needs nothing but the standard library; it runs in the namespace of one switch of the fabric, or of
a wire between two ranks, in place of the kernel's bridge. ``switch.py PLAN``: a JSON object with ``ports`` (interface names),
``table`` (hardware address to interface) and ``links`` (name: the interface, whether frames come ``in`` or go ``out`` there, the
seed). Each line on standard input is an order, ``{"link": name, "loss": ..., "latency_s": ...}`` or ``{}``; each is answered by
one line of counters, so that the answer tells when the order holds.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 1, 6, 23
PROMISCUOUS = 1
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 4 << 20
FRAMES_AT_ONCE = 32
OVERTAKEN_BY = 3  # frames that pass a held one: what TCP takes for a loss
LONGEST_HOLD_S = 0.01  # a held frame goes on by then, though none followed
FIELDS = ("loss", "latency_s", "jitter_s", "reorder", "ecn")


def hits(share: float, seed: str) -> Iterator[int]:
    """Yield the numbers, from 0, of the frames that chance of ``share`` picks; the same seed picks the same."""
    draw = random.Random(seed)  # noqa: S311 (a lottery, not a secret)
    number = -1
    while True:
        if share <= 0.0:
            return
        number += 1
        while draw.random() >= share:
            number += 1
        yield number


class Chance:
    """Says for one frame after the other whether it is picked."""

    def __init__(self, share: float, seed: str) -> None:
        self._hits = hits(share, seed)
        self._next = next(self._hits, -1)
        self._number = -1

    def __bool__(self) -> bool:
        self._number += 1
        if self._number != self._next:
            return False
        self._next = next(self._hits, -1)
        return True


class SwitchPort:
    """One interface."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.full = 0  # frames the queue behind the port had no room for
        self.overrun = 0  # frames that came faster than this program read
        self.inward: LinkImpairment | None = None
        self.outward: LinkImpairment | None = None
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        for forced, plain in ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF)):
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
            except OSError:
                self.socket.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
        self.socket.bind((name, ETH_P_ALL))
        member = struct.pack("iHH8s", socket.if_nametoindex(name), PROMISCUOUS, 0, b"")
        self.socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
        self.socket.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.socket.fileno()

    def send(self, frame: bytes) -> None:
        """Hand a frame to the port's queue; one that finds no room is counted and gone, as on any switch."""
        try:
            self.socket.send(frame)
        except OSError:
            self.full += 1

    def frames(self) -> Iterator[bytes]:
        """Yield what has arrived, a bounded number at once so that no port starves another."""
        try:
            for _ in range(FRAMES_AT_ONCE):
                yield self.socket.recv(65536)
        except OSError:
            return  # nothing more, or the interface is down

    def overruns(self) -> int:
        """Return frames lost because this program was too slow; the kernel forgets its count when asked."""
        _, drops = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self.overrun += drops
        return self.overrun


class LinkImpairment:
    """What happens to frames on one directed link."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.values = dict.fromkeys(FIELDS, 0.0)
        self.counts = dict.fromkeys(("frames", "lost", "reordered", "marked"), 0)
        self.last_due_s = 0.0
        self.held: list[tuple[bytes, SwitchPort, int]] = []
        self._orders = 0
        self.order({})

    def order(self, values: dict[str, float]) -> None:
        """Take new values; chances begin anew, with a seed of their own."""
        self.values.update({name: value for name, value in values.items() if name in FIELDS})
        self._orders += 1
        loss, self.latency_s, self.jitter_s, reorder, ecn = (self.values[name] for name in FIELDS)
        seeds = [f"{self.seed} {self._orders} {what}" for what in ("loss", "reorder", "ecn", "jitter")]
        self.is_lost, self.is_late = Chance(loss, seeds[0]), Chance(reorder, seeds[1])
        self.is_marked, self.draw = Chance(ecn, seeds[2]), random.Random(seeds[3])  # noqa: S311

    def delay_s(self) -> float:
        """Return what the next frame waits beyond nothing."""
        return self.latency_s + (self.draw.random() * self.jitter_s if self.jitter_s else 0.0)


class Switch:
    """Ports, links and frames under way."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.ports = {name: SwitchPort(name) for name in plan["ports"]}
        self.table = {bytes.fromhex(mac.replace(":", "")): self.ports[name] for mac, name in plan["table"].items()}
        self.links: dict[str, LinkImpairment] = {}
        for name, (port, direction, seed) in plan["links"].items():
            self.links[name] = LinkImpairment(seed)
            setattr(self.ports[port], {"in": "inward", "out": "outward"}[direction], self.links[name])
        self.waiting: list[tuple[float, int, bytes, LinkImpairment | None, SwitchPort]] = []
        self.sequence = 0
        self.held_until_s: dict[LinkImpairment, float] = {}

    def run(self) -> None:
        """Switch frames until standard input ends."""
        sockets, orders = list(self.ports.values()), sys.stdin.fileno()
        text = b""
        while True:
            ready, _, _ = select.select([*sockets, orders], [], [], self._patience_s())
            for each in ready:
                if isinstance(each, SwitchPort):
                    for frame in each.frames():
                        self._arrived(frame, each)
                    continue
                more = os.read(orders, 65536)
                if not more:
                    return
                *lines, text = (text + more).split(b"\n")
                for line in lines:
                    self.order(json.loads(line))
            if self.waiting:
                self._release()
            if self.held_until_s:
                self._let_go()

    def _patience_s(self) -> float | None:
        moments = [self.waiting[0][0]] if self.waiting else []
        moments += self.held_until_s.values()
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def order(self, order: dict[str, Any]) -> None:
        """Change a link, or nothing, and answer with the counters."""
        if "link" in order:
            self.links[order["link"]].order(order)
        answer = {
            "links": {name: link.counts for name, link in self.links.items()},
            "full": {port.name: port.full for port in self.ports.values()},
            "overrun": {port.name: port.overruns() for port in self.ports.values()},
            "cpu_s": time.process_time(),
        }
        print(json.dumps(answer), flush=True)

    def _arrived(self, frame: bytes, port: SwitchPort) -> None:
        if port.inward is None:
            self._forward(frame, port)
        else:
            self._through(port.inward, frame, port, inward=True)

    def _forward(self, frame: bytes, source: SwitchPort) -> None:
        known = self.table.get(frame[:6])
        for port in [known] if known is not None else [each for each in self.ports.values() if each is not source]:
            if port.outward is None:
                port.send(frame)
            else:
                self._through(port.outward, frame, port, inward=False)

    def _through(self, link: LinkImpairment, frame: bytes, port: SwitchPort, *, inward: bool) -> None:
        """Let a link act on a frame, then pass it on: into the switch, or out of the port."""
        link.counts["frames"] += 1
        if link.is_lost:
            link.counts["lost"] += 1
            return
        if link.is_marked:
            frame, marked = congestion_experienced(frame)
            link.counts["marked"] += marked
        if link.is_late:
            link.counts["reordered"] += 1
            link.held.append((frame, port, OVERTAKEN_BY))
            self.held_until_s[link] = time.monotonic() + LONGEST_HOLD_S
            return
        self._after_delay(link, frame, port, inward=inward)
        if link.held:
            self._overtake(link)

    def _after_delay(self, link: LinkImpairment, frame: bytes, port: SwitchPort, *, inward: bool) -> None:
        delay_s = link.delay_s()
        if not delay_s and link.last_due_s <= time.monotonic():
            self._pass(frame, port, inward=inward)
            return
        link.last_due_s = max(link.last_due_s, time.monotonic() + delay_s)  # jitter alone keeps the order
        self.sequence += 1
        heapq.heappush(self.waiting, (link.last_due_s, self.sequence, frame, link if inward else None, port))

    def _pass(self, frame: bytes, port: SwitchPort, *, inward: bool) -> None:
        if inward:
            self._forward(frame, port)
        else:
            port.send(frame)

    def _overtake(self, link: LinkImpairment) -> None:
        """A frame has passed those held; one that enough have passed goes on."""
        link.held = [(frame, port, left - 1) for frame, port, left in link.held]
        while link.held and link.held[0][2] <= 0:
            self._free(link)
        if not link.held:
            self.held_until_s.pop(link, None)

    def _free(self, link: LinkImpairment) -> None:
        frame, port, _ = link.held.pop(0)
        self._after_delay(link, frame, port, inward=port.inward is link)

    def _let_go(self) -> None:
        now_s = time.monotonic()
        for link in [link for link, moment_s in self.held_until_s.items() if moment_s <= now_s]:
            while link.held:
                self._free(link)
            del self.held_until_s[link]

    def _release(self) -> None:
        now_s = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now_s:
            _, _, frame, link, port = heapq.heappop(self.waiting)
            self._pass(frame, port, inward=link is not None)


def congestion_experienced(frame: bytes) -> tuple[bytes, bool]:
    """Return the frame marked, and whether it could be: IPv4 of a sender that knows ECN; the header's sum is kept right."""
    if frame[12:14] != b"\x08\x00" or frame[15] & 3 in (0, 3):
        return frame, False
    header = bytearray(frame)
    before = header[14] << 8 | header[15]
    header[15] |= 3
    after = header[14] << 8 | header[15]
    total = (~(header[24] << 8 | header[25]) & 0xFFFF) + (~before & 0xFFFF) + after  # RFC 1624
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header[24], header[25] = total >> 8, total & 0xFF
    return bytes(header), True


def main() -> None:
    """Switch until the lab closes standard input."""
    switch = Switch(json.loads(sys.argv[1]))
    with suppress(OSError):  # without root, at the common priority
        os.nice(-10)
    switch.order({})  # the first answer says that it is ready
    switch.run()


if __name__ == "__main__":
    main()
