"""Redaction: secrets become ``***``, and hosts, addresses, paths and user names ``host-1``, ``ip-1``, ``path-1``, ``user-1``.

The same value always gets the same replacement, so that what a log says about who talks to whom survives. With a
``salt`` the replacements are keyed digests, equal over several runs of the tool with the same salt; without one they
are numbered in order of appearance. Hosts are learned from NCCL's own prefix ``HOST:PID:TID [DEV] NCCL`` and from host
columns; users from home folders. Names that appear in neither place (a project name inside an option, say) stay:
read the result before you share it.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ringwright.ground.scrub import scrub
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

_PREFIX = re.compile(r"([A-Za-z0-9._-]{1,255}):\d{1,10}:\d{1,10} (?:\[\d{1,4}\] )?(?:[\w./+-]{1,200}:\d{1,7} )?NCCL ")
_HOME = re.compile(r"/(?:home|Users|users)/([\w.-]{2,64})|\b(?:USER|USERNAME|LOGNAME)=([\w.-]{2,64})")
_SCAN = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+]{1,15}://[^\s\"'<>\])]+)"
    r"|(?P<path>(?<![\w./\])}>-])~?/(?:[\w.@%+~=,-]+/?)+)"
    r"|(?P<address>(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<six>(?<!\w)[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){1,7}(?::\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]))"
    r"|(?P<four>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))"
    # Pointers and whole numbers, most of a log's words, are passed over without a look.
    r"|(?P<word>(?<!\w)(?!0x[0-9a-fA-F]+\b|[0-9]+(?![\w.-]))[A-Za-z0-9_][\w.-]*)"
)
_WORD = re.compile(r"[A-Za-z0-9_][\w.-]*")
_LETTERS = re.compile(r"[A-Za-z]{2}")
_MOST_CACHED = 1_000_000
_PUBLIC_ROOTS = ("/dev/", "/proc/", "/sys/", "/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
# A host of such a name is no secret, and replacing the word would break the log's grammar.
_GRAMMAR = frozenset("nccl info warn rank nranks comm localhost channel ring via root user init".split())
_ANY_ADDRESS = ("::", "0.0.0.0")  # noqa: S104 - compared, never bound
_SHORTEST_FRAGMENT = 4


class Redactor:
    """Holds what was learned and what each value became; ``text`` redacts one string."""

    def __init__(self, salt: str = "") -> None:
        self._salt = salt
        self._given: dict[str, dict[str, str]] = {
            "host": {},
            "user": {},
            "ip": {},
            "path": {},
            "url": {},
            "address": {},
        }
        self._hosts: Counter[str] = Counter()
        self._glued: dict[str, tuple[str, str]] | None = None
        self._seen: dict[str, str] = {}
        self._longest_first: list[tuple[str, str]] = []

    def learn(self, text: str) -> None:
        """Learn the hosts and users that a piece of a log names."""
        self._hosts.update(match[1] for match in _PREFIX.finditer(text))
        self.learn_users(name for match in _HOME.finditer(text) for name in match.groups())
        self._forget()

    def learn_hosts(self, names: Iterable[str | None]) -> None:
        """Learn host names from a host column."""
        self._hosts.update(name for name in names if name)
        self._forget()

    def learn_users(self, names: Iterable[str | None]) -> None:
        """Learn user names."""
        for name in names:
            if name and name.lower() not in _GRAMMAR:
                self.replace("user", name)
        self._forget()

    def replace(self, kind: str, value: str) -> str:
        """Return the replacement of a value: host, user, ip, path, url or address."""
        given = self._given[kind]
        if value not in given:
            given[value] = f"{kind}-{self._digest(value)}" if self._salt else f"{kind}-{len(given) + 1}"
        return given[value]

    def text(self, text: str) -> str:
        """Return a text with everything known and everything recognisable replaced, secrets first."""
        text = scrub(text)
        if self._glued is None:
            self._glued = self._find_glued()
            names = [(name, "host") for name in self._hosts if name not in self._glued]
            names += [(name, "user") for name in self._given["user"]]
            self._longest_first = sorted(
                (n for n in names if len(n[0]) >= _SHORTEST_FRAGMENT), key=lambda n: -len(n[0])
            )
        seen = self._seen
        if len(seen) > _MOST_CACHED:
            seen.clear()

        def piece(match: re.Match[str]) -> str:
            found = match[0]
            known = seen.get(found)
            if known is None:
                known = seen[found] = self._piece(match.lastgroup or "", found)
            return known

        return _SCAN.sub(piece, text)

    def counts(self) -> dict[str, int]:
        """Return how many different values of each kind were replaced."""
        return {kind: len(given) for kind, given in self._given.items() if given}

    def _digest(self, value: str) -> str:
        return blake2b(value.encode("utf-8", "replace"), key=self._salt.encode()[:64], digest_size=5).hexdigest()

    def _forget(self) -> None:
        self._glued = None
        self._seen = {}

    def _find_glued(self) -> dict[str, tuple[str, str]]:
        """Return rare prefixes that are another writer's text glued to a frequent host: token -> (text, host)."""
        glued = {}
        for token, seen in self._hosts.items():
            ends = (token[at:] for at in range(1, len(token) - _SHORTEST_FRAGMENT + 1))  # the longest first
            host = next((end for end in ends if self._hosts.get(end, 0) >= 10 * seen), None)
            if host:
                glued[token] = (token[: -len(host)], host)
        return glued

    def _piece(self, kind: str, piece: str) -> str:
        if kind == "word":
            return self._word(piece)
        if kind == "path":
            return piece if piece.startswith(_PUBLIC_ROOTS) else self.replace("path", piece)
        if kind in ("four", "six"):
            if piece in self._hosts:
                return self._word(piece)
            return self.replace("ip", piece) if _is_address(piece) else _WORD.sub(lambda m: self._word(m[0]), piece)
        return self.replace(kind, piece)

    def _word(self, token: str) -> str:
        bare = token.rstrip(".-")
        rest = token[len(bare) :]
        if bare.lower() in _GRAMMAR:
            return token
        if self._glued and bare in self._glued:
            lead, host = self._glued[bare]
            fragment = len(lead) >= _SHORTEST_FRAGMENT and any(known.startswith(lead) for known in self._hosts)
            return ("cut" if fragment else self._word(lead)) + self.replace("host", host) + rest
        if bare in self._hosts:
            return self.replace("host", bare) + rest
        if bare in self._given["user"]:
            return self._given["user"][bare] + rest
        if bare.partition(".")[0] in self._hosts:
            return self.replace("host", bare) + rest
        return self._inside(bare) + rest

    def _inside(self, token: str) -> str:
        """Replace hosts and users inside a compound such as ``node1_rank0``; pointers and numbers have none."""
        if not any(mark in token for mark in "._-") or not _LETTERS.search(token):
            return token
        for name, kind in self._longest_first:
            if name in token:
                return token.replace(name, self.replace(kind, name))
        return token


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return text not in _ANY_ADDRESS


def redact(trace: Trace, *, salt: str = "") -> Trace:
    """Return a Trace with every string of every table and of ``meta`` redacted; numbers are untouched."""
    redactor = Redactor(salt)
    frames = {name: trace.table(name) for name in TABLES}
    files: set[str] = set()
    for name, frame in frames.items():
        for column in frame.columns:
            if column == "host":
                redactor.learn_hosts(frame[column].unique(maintain_order=True).to_list())
            elif column == "file":
                files.update(v for v in frame[column].unique(maintain_order=True).to_list() if v)
            elif TABLES[name][column] == "str":
                for value in frame[column].unique(maintain_order=True).drop_nulls().to_list():
                    redactor.learn(value)
    ordered = sorted(files, key=lambda value: (-len(value), value))
    for value in ordered:
        redactor.learn(value)
        redactor.replace("path", value)
    redacted = {name: _frame(name, frame, redactor, ordered) for name, frame in frames.items()}
    return Trace.of(redacted, {**_plain(dict(trace.meta), redactor, ordered), "redacted": True})


def _string(text: str, redactor: Redactor, files: list[str]) -> str:
    """Redact one string; names of input files go first, as they may be relative and so look like nothing."""
    for name in files:
        if name in text:
            text = text.replace(name, redactor.replace("path", name))
    return redactor.text(text)


def _frame(name: str, frame: pl.DataFrame, redactor: Redactor, files: list[str]) -> pl.DataFrame:
    import polars as pl

    columns = []
    for column in frame.columns:
        if TABLES[name][column] != "str":
            continue
        old = frame[column].unique(maintain_order=True).drop_nulls().to_list()
        new = [redactor.replace("host", v) if column == "host" else _string(v, redactor, files) for v in old]
        changed = {a: b for a, b in zip(old, new, strict=True) if a != b}
        if changed:
            columns.append(pl.col(column).replace(list(changed), list(changed.values())))
    return frame.with_columns(columns)


def _plain(value: Any, redactor: Redactor, files: list[str]) -> Any:
    """Redact plain JSON values; a string of meta with a slash and no blank is a path."""
    if isinstance(value, dict):
        return {_plain(key, redactor, files): _plain(item, redactor, files) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, redactor, files) for item in value]
    if not isinstance(value, str):
        return value
    known = redactor.text(value) if value not in files else redactor.replace("path", value)
    looks_like_path = known == value and "/" in value and not re.search(r"\s", value)
    return redactor.replace("path", value) if looks_like_path else _string(known, redactor, files)
