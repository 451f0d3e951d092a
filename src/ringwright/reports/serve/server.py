"""The server itself: where it listens, who may ask, what it keeps, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.formats.sources.many_jobs import is_many_jobs
from ringwright.ground import drafts
from ringwright.ground.errors import InputError, MissingExtraError, UsageError
from ringwright.reports.serve.fleet import ServedFleet
from ringwright.reports.serve.gate import LOOPBACK, RequestGuard
from ringwright.reports.serve.site import FLEET, ServedJobs
from ringwright.reports.serve.workspace import Workspace, job_id

PORT = 8642
LAST_PORT = 65_535
TRIED = 20  # ports after the usual one, where that is taken
LAST_WORDS_S = 2
UPLOAD_BYTES = 16 << 30


@dataclass(frozen=True)
class Address:
    """Where a server listens; ``token`` is empty where none is asked for."""

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """What is opened in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def serve(
    paths: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str = "",
    keep: Path | None = None,
    follow: bool = False,
    fleet: bool | None = None,
    executor: str = "",
    upload_bytes: int = UPLOAD_BYTES,
    lasts_s: float | None = None,
    ready: Callable[[Address, str], None] = lambda _address, _note: None,
) -> None:
    """Serve jobs until SIGTERM or Ctrl-C.

    Parameters
    ----------
    paths
        Files and folders that are opened at once; what lies below them can be opened from the page.
    host
        Beyond this machine a token is asked for; one is made where none is given.
    port
        0 takes a free one; None the usual one, or one after it where that is taken.
    keep
        Folder of what was opened and asked; None for the user's own.
    follow
        Read the jobs anew whenever their files grow.
    fleet
        Whether each entry of a folder is a job; None: where the folder holds several whole recordings, those are.
    executor
        Who reads many jobs, as it is spelled; empty for the usual one.
    upload_bytes
        The largest file that is taken from a browser.
    lasts_s
        End after so many seconds.
    ready
        Called once requests are taken, with the address and what has to be said.

    Raises
    ------
    InputError
        A file or folder is not there.
    UsageError
        The port is taken, the host is none of this machine, or another server keeps its jobs in the folder.
    MissingExtraError
        The libraries of the extra ``serve`` are missing.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("pages are served by two libraries of which one is missing", extra="serve") from error
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path} is not there", remedy="name a file or a folder; standard input cannot be served")
    local = host in LOOPBACK or _is_loopback(host)
    chosen = token or ("" if local else secrets.token_urlsafe(24))
    with _listening(host, port) as listener, _workspace(keep) as (folder, note):
        address = Address(host, listener.getsockname()[1], chosen)
        names = {*LOOPBACK, host} if local else ()
        many = [path for path in paths if fleet is not False and _holds_many(Path(path), every=fleet is True)]
        site = ServedJobs(Workspace(folder), [*map(Path, paths), folder / "uploads", folder / "runs"])
        if many:
            site.fleet = ServedFleet(
                [*map(Path.resolve, map(Path, many))], folder / FLEET / job_id("\n".join(many)), fleet is True, executor
            )
            site.fleet.kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        alone = [path for path in paths if path not in many]
        with asyncio.Runner() as runner:
            running = _run(
                alone, site, listener, address, names, follow, upload_bytes, lasts_s, lambda: ready(address, note)
            )
            runner.run(running)


def _holds_many(path: Path, *, every: bool) -> bool:
    return path.is_dir() if every else is_many_jobs(path)


# long: a life of the server from its folder to its end, in order
async def _run(
    paths: Sequence[str],
    site: ServedJobs,
    listener: socket.socket,
    address: Address,
    names: Collection[str],
    follow: bool,
    upload_bytes: int,
    lasts_s: float | None,
    ready: Callable[[], None],
) -> None:
    import uvicorn

    from ringwright.reports.serve.application import application

    gate = RequestGuard(application(site, upload_bytes), token=address.token, names=names)
    config = uvicorn.Config(
        gate,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=LAST_WORDS_S,
        timeout_keep_alive=30,
        limit_concurrency=2000,
        ws="none",
    )
    server = uvicorn.Server(config)
    # The library would raise the signal again when it has ended; ending on request is no failure here.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True
        site.ended = True
        site.changed()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end)

    async def begin() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        ready()
        if site.fleet is not None:
            site.fleet.following = follow
            await site.looked_at()
        for path in paths:
            job = site.open(str(Path(path).resolve()))
            if follow:
                site.follow(job.id, True)

    if lasts_s is not None:
        loop.call_later(lasts_s, end)
    beginning = asyncio.create_task(begin())
    await server.serve(sockets=[listener])
    beginning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beginning


def announce(address: Address, note: str, *, as_json: bool = False) -> None:
    """Say where a server is."""
    if as_json:
        line = json.dumps({"schema": "ringwright.serve/1", "url": address.url, "token": address.token, "note": note})
    else:
        line = "\n".join(filter(None, [f"serving {address.url} until Ctrl-C", note]))
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def open_browser(address: Address) -> None:
    """Open the page where somebody sits at this machine: a terminal and a screen."""
    import webbrowser

    has_screen = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if has_screen and sys.stdout.isatty():
        webbrowser.open(address.url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _listening(host: str, port: int | None) -> Iterator[socket.socket]:
    """Give a socket that listens, or UsageError."""
    if port is not None and not 0 <= port <= LAST_PORT:
        raise UsageError(f"port {port} is none", remedy=f"0, a free one, to {LAST_PORT}")
    ports = [port] if port is not None else [*range(PORT, PORT + TRIED), 0]
    for each in ports:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(host, each, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            break
        except (OSError, UnicodeError) as error:
            if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES) and each != ports[-1]:
                continue
            words = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"{host}:{each} cannot be listened on: {words.lower()}", remedy="ringwright serve --port 0, a free one"
            ) from error
    with listener:
        listener.listen(2048)
        listener.setblocking(False)
        yield listener


@contextlib.contextmanager
def _workspace(keep: Path | None) -> Iterator[tuple[Path, str]]:
    """Give the folder of what is kept, and what has to be said of it; nobody else keeps anything there meanwhile."""
    folder = keep if keep is not None else usual_folder()
    try:
        with drafts.writing(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        holding = contextlib.ExitStack()
        holding.enter_context(drafts.alone(folder))
    except UsageError as error:
        if keep is not None:
            raise
        with tempfile.TemporaryDirectory(prefix="ringwright-serve-") as temporary:
            yield Path(temporary), f"nothing is kept after the end ({error.what}); --keep FOLDER names one that is"
        return
    with holding:
        yield folder, ""


def usual_folder() -> Path:
    """Return where a user's servers keep their jobs."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "ringwright" / "serve"
