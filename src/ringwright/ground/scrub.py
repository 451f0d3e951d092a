"""The one scrubber of secrets: passwords, tokens and keys in command lines, settings, addresses and texts become ``***``.

It knows names (``--password=...``, ``HF_TOKEN=...``, ``"api_key": "..."``) and forms (``hf_...``, ``ghp_...``, ``AKIA...``,
``Bearer ...``, a user and password in an address). What has neither a telling name nor a known form stays: read before you share.

It imports nothing of this package and runs on Python 3.8: inside a recorded job it is loaded by its path.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN = "***"

_NAME = (
    r"[\w.-]*(?:pass(?:word|wd|phrase)|secret|token|credentials?|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key"
    r"|private[_-]?key|auth[_-]?key|account[_-]?key|license[_-]?key|signing[_-]?key|encryption[_-]?key|webhook|connection[_-]?string|signature)"
)
# Words of a tokenizer, and of a router of tokens, are no secrets.
_NO_SECRET = re.compile(
    r"(?i)(?:^|[-_.])(?:eos|bos|pad|unk|sep|cls|mask|image|video|audio|special|stop|start|end|per|next|max|min|num|each|new|prompt)"
    r"[-_]?token$"
)
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"'&;,<>|)\]}]+"
_MARK = r"[\"']?\s*(?:=|:(?!:))\s*|(?<=\w)\s+(?=[^-\s])"
_NAMED = re.compile(rf"(?i)(?P<name>(?<![\w.-])-{{0,2}}{_NAME})(?P<mark>{_MARK})(?P<value>{_VALUE})")
_OPTION = re.compile(rf"(?i)^-{{1,2}}{_NAME}$")
_FORMS = re.compile(
    r"(?:hf_|api_org_)[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|(?:AKIA|ASIA|AROA)[A-Z0-9]{12,}"
    r"|sk-[\w-]{16,}|xox[abeoprs]-[\w-]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{16,}|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}|nvapi-[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|dop_v1_[0-9a-f]{32,}|SG\.[\w-]{16,}\.[\w-]{16,}"
)
_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)")
# What every secret that is found has near it: most of a log is passed over by this alone.
_HINTS = tuple(
    """passw passphrase secret token credential _key -key apikey accesskey privatekey webhook connection signature bearer basic
    user :// hf_ api_org_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat glpat- akia asia aroa sk- xox aiza ya29 npm_ pypi- nvapi- eyj dop_v1
    sg.
    """.split()
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)(?=[\w.~+/=-]*[\d=+/._-])[\w.~+/=-]{8,}")
_ADDRESS = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,15}://)[^/\s:@\"']*:[^/\s@\"']+@")
_USER = re.compile(r"(?<!\S)(-u\s+|--user[= ]|--proxy-user[= ])([^\s:]+):(\S+)")


def scrub(text: str) -> str:
    """Return a text with its secrets hidden."""
    if "PRIVATE KEY" in text:
        text = _BLOCK.sub(HIDDEN, text)
    if not _may_hold(text):
        return text
    return "\n".join(_line(line) if _may_hold(line) else line for line in text.split("\n"))


def _may_hold(text: str) -> bool:
    low = text.lower()
    return "-u " in low or any(hint in low for hint in _HINTS)


def _line(text: str) -> str:
    text = _FORMS.sub(HIDDEN, text)
    text = _ADDRESS.sub(lambda found: found[1] + HIDDEN + "@", text)
    text = _BEARER.sub(lambda found: found[1] + found[2] + HIDDEN, text)
    text = _USER.sub(lambda found: found[1] + found[2] + ":" + HIDDEN, text)
    return _NAMED.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    name, mark, value = found["name"], found["mark"], found["value"]
    is_option = name.startswith("-")
    if _NO_SECRET.search(name) or value in (HIDDEN, "None", "null", "True", "False", "true", "false"):
        return found[0]
    if mark.isspace() and not is_option:  # a word before a word is prose
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return name + mark + quote + HIDDEN + quote


def words(command: Sequence[str]) -> list[str]:
    """Return the words of a command with secrets hidden, also those that stand alone after their option."""
    scrubbed: list[str] = []
    is_next = False
    for word in command:
        scrubbed.append(HIDDEN if is_next and not word.startswith("-") else scrub(word))
        is_next = bool(_OPTION.match(word)) and not _NO_SECRET.search(word)
    return scrubbed
