"""Ranks that meet over TCP believe nobody who does not know their secret."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from patience import HANG_S
from ringwright.execute import handshake
from ringwright.execute.sockets import Sockets

pytestmark = pytest.mark.once


def address_of(folder: Path) -> tuple[str, int, str]:
    while not (folder / "address-0").exists():
        time.sleep(0.001)
    address, port, secret = (folder / "address-0").read_text().split()
    return address, int(port), secret


def test_a_stranger_who_connects_first_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One says nothing, one guesses, one knows the secret but claims to be the node that it calls; then the peer comes."""
    monkeypatch.setattr(handshake, "PATIENCE_S", 0.05)
    monkeypatch.setattr(handshake.greeted, "__defaults__", (0.05,))
    made: dict[int, Sockets] = {}
    listening = threading.Thread(target=lambda: made.update({0: Sockets(tmp_path, 0, 2, "127.0.0.1")}))
    listening.start()
    address, port, secret = address_of(tmp_path)
    strangers = []
    for words in (b"", b"\x01\x00\x00\x00", bytes(16) + b"\0\0\0\x01", bytes.fromhex(secret) + b"\0\0\0\0"):
        strangers.append(socket.create_connection((address, port)))
        strangers[-1].sendall(words)
    time.sleep(0.01)
    made[1] = Sockets(tmp_path, 1, 2, "127.0.0.1")
    listening.join(HANG_S)
    mine, theirs = made[0].link(1).connection, made[1].link(0).connection
    assert (mine.getpeername(), theirs.getpeername()) == (theirs.getsockname(), mine.getsockname())
    assert (tmp_path / "address-0").stat().st_mode & 0o077 == 0
    for end in (*strangers, mine, theirs):
        end.close()


def test_a_caller_does_not_believe_who_does_not_know_the_secret() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(bytes(16))
    assert not handshake.greet(ours, handshake.secret(), 1)
    assert ours.fileno() == -1
    theirs.close()
