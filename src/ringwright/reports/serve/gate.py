"""Who may ask a server, and what its answers may do in a browser.

On this machine alone no secret is asked for, but a request must name the server as a browser of this machine does, or a page of
any site could have its own name point here; and what changes something must come from our own page. Beyond this machine, or
where one was given, every request carries the token: once in the address, then in a cookie that no script can read.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "ringwright-token"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
UNCHANGING = frozenset({"GET", "HEAD"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report runs its own script and nothing else, as a stranger to this server: it can ask it nothing.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class RequestGuard:
    """Refuses what nobody here has asked for, before anything else looks at it.

    Parameters
    ----------
    behind
        The application.
    token
        What each request must carry; empty where none is needed.
    names
        Hosts under which the server may be asked; empty for any, which needs a token.
    """

    def __init__(self, behind: ASGIApp, *, token: str = "", names: Iterable[str] = LOOPBACK) -> None:
        self._behind, self._token, self._names = behind, token, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._behind(scope, receive, send)
            return
        if scope["type"] != "http":
            await _refuse(send, 404, "nothing here speaks that protocol")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["method"], headers)
        if refusal:
            await _refuse(send, 403, refusal)
            return
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
        if self._token and not self._knows(given, headers):
            await _refuse(send, 401, "this server asks for its token: open the address that it printed when it began")
            return
        if self._token and given and scope["method"] == "GET":
            await self._welcome(scope, send)
            return
        await self._behind(scope, receive, _sealed(send))

    def _refusal(self, method: str, headers: MutableMapping[str, str]) -> str:
        host = headers.get("host", "")
        if self._names and _hostname(host) not in self._names:
            return f"this server is not called {host[:80]!r}; use the address that it printed"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "a page of another site asks"
        if method not in UNCHANGING and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "a page of another site asks"
        return ""

    def _knows(self, given: str, headers: MutableMapping[str, str]) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            cookies.clear()
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in (given, bearer, kept) if each)

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """Take the token out of the address, so that it stands in no history and no link that is sent on."""
        rest = [(name, value) for name, value in parse_qsl(scope["query_string"].decode("latin-1")) if name != "token"]
        target = "/" + scope["path"].lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Lax; Path=/"
        headers = [(b"location", target.encode()), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 303, "headers": [*headers, *HEADERS]})
        await send({"type": "http.response.body", "body": b""})


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _sealed(send: Send) -> Send:
    """Return what sends an answer with the headers that every answer has; a report brings its own policy."""

    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            given = {name.lower() for name, _ in headers}
            if b"content-security-policy" not in given:
                headers.append((b"content-security-policy", POLICY.encode()))
            if b"cache-control" not in given:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*headers, *HEADERS]}
        await send(message)

    return sealed


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-security-policy", POLICY.encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS]})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})
