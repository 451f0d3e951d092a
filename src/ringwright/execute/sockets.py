"""A wire of TCP connections, one for each pair of nodes that talk, moved on by whoever waits.

Bytes follow each other without headers: both ends know the plan, so both know what comes next. A receive that is posted
late finds its bytes in the kernel's buffer.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.execute import handshake
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.execute.push import Request

CONNECT_S = 60.0
MOST_VIEWS = 64  # views in one system call


class _Piece:
    """A request; ``view`` is what is left of it."""

    __slots__ = ("_link", "_wire", "done", "order", "sends", "view", "whole")

    def __init__(self, wire: Sockets, link: _Link, buffer: np.ndarray, order: int, *, sends: bool) -> None:
        self._wire, self._link, self.order, self.sends = wire, link, order, sends
        self.whole = memoryview(buffer.data).cast("B")
        self.view = self.whole
        self.done = True

    def start(self) -> None:
        self.view = self.whole
        self.done = False
        link = self._link
        if self.sends:
            link.leaving.append(self)
            link.push()
        else:
            link.posted[link.base + self.order] = self

    def wait(self) -> None:
        progress = self._wire.progress
        while not self.done:
            progress()


class _Link:
    """The connection to one peer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.leaving: deque[_Piece] = deque()
        self.posted: dict[int, _Piece] = {}
        self.next = 0  # order of the piece whose bytes come next
        self.base = 0  # orders used up by sessions and rounds before

    def push(self) -> bool:
        """Send what the kernel takes; return whether it took any."""
        moved = False
        while self.leaving:
            views = [each.view for each, _ in zip(self.leaving, range(MOST_VIEWS), strict=False)]
            try:
                sent = self.connection.sendmsg(views)
            except BlockingIOError:
                return moved
            moved = True
            while self.leaving and sent >= len(self.leaving[0].view):
                piece = self.leaving.popleft()
                sent -= len(piece.view)
                piece.done = True
            if sent:
                head = self.leaving[0]
                head.view = head.view[sent:]
        return moved

    def pull(self) -> bool:
        """Receive into the piece whose turn it is; return whether anything came."""
        moved = False
        while (piece := self.posted.get(self.next)) is not None:
            try:
                count = self.connection.recv_into(piece.view)
            except BlockingIOError:
                return moved
            if not count:
                raise ConnectionResetError("the peer has closed the connection")
            moved = True
            if count < len(piece.view):
                piece.view = piece.view[count:]
                continue
            del self.posted[self.next]
            self.next += 1
            piece.done = True
        return moved


class _Session:
    """Requests of one plan: their orders count from the link's base at the time of each round."""

    at_once = False

    def __init__(self, wire: Sockets) -> None:
        self._wire = wire
        self._counts: dict[int, int] = {}

    def send(self, peer: int, turn: int, piece: int, buffer: np.ndarray) -> Request:
        del turn, piece  # what is sent first arrives first
        return _Piece(self._wire, self._wire.link(peer), buffer, 0, sends=True)

    def receive(self, peer: int, turn: int, piece: int, buffer: np.ndarray) -> Request:
        del turn, piece  # receives are prepared in the order of the peer's sends
        order = self._counts.get(peer, 0)
        self._counts[peer] = order + 1
        return _Piece(self._wire, self._wire.link(peer), buffer, order, sends=False)

    def finish(self) -> None:
        for peer, count in self._counts.items():
            self._wire.link(peer).base += count


class Sockets:
    """All connections of one node. They are made at once: a node listens for those above it and calls those below."""

    def __init__(self, folder: Path, node: int, nodes: int, address: str) -> None:
        self._links: dict[int, _Link] = {}
        self._poll = select.poll()
        listener = socket.create_server((address, 0), backlog=max(nodes, 1))
        secret = handshake.secret()
        _announce(folder, node, listener, secret)
        with listener:
            for below in range(node):
                self._keep(below, _call(folder, node, below))
            self._await(listener, secret, node, nodes)
        self._active = list(self._links.values())

    def _await(self, listener: socket.socket, secret: bytes, node: int, nodes: int) -> None:
        """Take the calls of the nodes above; strangers, and who says to be somebody that is there, are not believed."""
        missing = set(range(node + 1, nodes))
        until_s = time.monotonic() + CONNECT_S
        while missing:
            listener.settimeout(max(until_s - time.monotonic(), 0.01))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                who = ", ".join(map(str, sorted(missing)))
                raise InfeasibleError(
                    f"node {node} waited {CONNECT_S:.0f} s for node {who}", where="while connecting"
                ) from None
            peer = handshake.greeted(connection, secret)
            if peer in missing:
                missing.remove(peer)
                self._keep(peer, connection)
            elif peer is not None:
                connection.close()

    def _keep(self, peer: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links[peer] = _Link(connection)

    def link(self, peer: int) -> _Link:
        """Return the connection to a peer."""
        return self._links[peer]

    def session(self) -> _Session:
        """Return a new session."""
        return _Session(self)

    def progress(self) -> None:
        """Move on whatever can move; sleep until something can where nothing does."""
        moved = False
        for link in self._active:
            if link.leaving:
                moved |= link.push()
            if link.posted:
                moved |= link.pull()
        if not moved:
            self._sleep()

    def _sleep(self) -> None:
        watched = 0
        poll = self._poll
        for link in self._active:
            events = select.POLLOUT * bool(link.leaving) | select.POLLIN * (link.next in link.posted)
            if events:
                poll.register(link.connection, events)
                watched += 1
            else:
                with contextlib.suppress(KeyError):
                    poll.unregister(link.connection)
        poll.poll(1000 if watched else 1)

    def close(self) -> None:
        """Close all connections."""
        for link in self._active:
            link.connection.close()


def _announce(folder: Path, node: int, listener: socket.socket, secret: bytes) -> None:
    address, port = listener.getsockname()[:2]
    draft = folder / f"address-{node}.draft"
    draft.touch(mode=0o600)
    draft.write_text(f"{address} {port} {secret.hex()}")
    draft.rename(folder / f"address-{node}")


def _call(folder: Path, node: int, peer: int) -> socket.socket:
    until_s = time.monotonic() + CONNECT_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError, ValueError):
            address, port, secret = (folder / f"address-{peer}").read_text().split()
            connection = socket.create_connection((address, int(port)), timeout=CONNECT_S)
            if handshake.greet(connection, bytes.fromhex(secret), node):
                return connection
        time.sleep(0.01)
    raise InfeasibleError(f"node {node} could not reach node {peer} within {CONNECT_S:.0f} s", where="while connecting")
