"""How two ranks that meet over TCP know each other: by a secret that only they were told; a stranger is refused.

Who calls says the secret and its number; who listens answers with the secret reversed. The secret goes another way: through the
job's own folder, or a broadcast.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket

SECRET_BYTES = 16
NUMBER_BYTES = 4
PATIENCE_S = 5.0  # for a caller to say who it is


def secret() -> bytes:
    """Return a new secret."""
    return secrets.token_bytes(SECRET_BYTES)


def greeted(end: socket.socket, known: bytes, patience_s: float = PATIENCE_S) -> int | None:
    """Return which rank has called; None, and the connection closed, for a stranger."""
    end.settimeout(patience_s)
    with contextlib.suppress(OSError):
        words = end.recv(SECRET_BYTES + NUMBER_BYTES, socket.MSG_WAITALL)
        if len(words) == SECRET_BYTES + NUMBER_BYTES and hmac.compare_digest(words[:SECRET_BYTES], known):
            end.sendall(known[::-1])
            return int.from_bytes(words[SECRET_BYTES:], "big")
    end.close()
    return None


def greet(end: socket.socket, known: bytes, rank: int) -> bool:
    """Say who we are, and return whether the one we called knows the secret; the connection is closed where not."""
    with contextlib.suppress(OSError):
        end.sendall(known + rank.to_bytes(NUMBER_BYTES, "big"))
        if hmac.compare_digest(end.recv(SECRET_BYTES, socket.MSG_WAITALL), known[::-1]):
            return True
    end.close()
    return False
