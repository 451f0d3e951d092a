"""The addresses of a server, and what each answers. Needs the libraries of the extra ``serve``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from ringwright import __version__, reports
from ringwright.analysis.timeline import event_view
from ringwright.ground.errors import InputError, RingwrightError, UsageError
from ringwright.reports.serve import questions, replies
from ringwright.reports.serve.fleet import moment
from ringwright.reports.serve.site import ERRORS, OUT, PAGE, UNFINISHED, shown

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringwright.reports.serve.site import ServedJobs

PAGES = Path(__file__).parent / "pages"
REPORTS = Path(reports.__file__ or "").parent
SHARED = ("elements.js", "timeline.css", "timeline.js")  # with reports, which hold them inline
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SCHEMA = "ringwright.serve/1"
BREATH_S = 20.0  # a stream of news says something at least so often, so that nobody in between closes it
MOST_LISTENERS = 512


class Views:
    """One method an address."""

    def __init__(self, site: ServedJobs, upload_bytes: int) -> None:
        self._site, self._upload_bytes = site, upload_bytes
        self._listeners = 0
        self._listed: dict[str, object] = {}

    # ---- the page

    async def file(self, request: Request) -> Response:
        """Return one of the page's own files."""
        name = request.path_params.get("name", "index.html")
        files = page_files()
        if name not in files:
            raise HTTPException(404, "no such file")
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers={"cache-control": "no-cache"})

    # ---- what there is

    async def state(self, _request: Request) -> Response:
        """Return jobs and runs, newest first."""
        workspace = self._site.workspace
        jobs = sorted(workspace.jobs.values(), key=lambda job: -job.opened_unix_s)
        runs = sorted(workspace.runs.values(), key=lambda run: -run.asked_unix_s)[:200]
        return replies.as_json(
            {
                "schema": SCHEMA,
                "version": self._site.version,
                "release": __version__,
                "jobs": [msgspec.to_builtins(job) for job in jobs],
                "runs": [{**msgspec.to_builtins(run), "command": shown(run)} for run in runs],
                "fleet": None if self._site.fleet is None else {"told": self._site.fleet.told},
            }
        )

    async def fleet(self, request: Request) -> Response:
        """Return the table of many jobs: all, those of a name, the one at a moment."""
        name, at = (request.query_params.get(word, "") for word in ("name", "at"))
        fleet = await self._site.looked_at()
        if not name and not at and fleet.file.exists():
            # read whole: while jobs are read the next table may take its place between a look at its size and its last byte
            return Response(await run_in_threadpool(fleet.file.read_bytes), media_type="application/json")
        return replies.as_json(await run_in_threadpool(fleet.table, name, at))

    async def named(self, request: Request) -> Response:
        """Send who comes with a job's name, and perhaps a moment, to its page."""
        at = request.query_params.get("at", "")
        asked = {"name": request.path_params["name"], **({"at": str(moment(at))} if at else {})}
        return RedirectResponse(f"/#{urlencode(asked)}", status_code=303)

    async def news(self, _request: Request) -> Response:
        """Stream the version of the state whenever it changes."""
        if self._listeners >= MOST_LISTENERS:
            raise HTTPException(503, "too many listen already")

        async def versions() -> AsyncIterator[str]:
            self._listeners += 1
            try:
                version = -1
                while not self._site.ended:
                    version = await self._site.news(version, BREATH_S)
                    yield f"data: {version}\n\n"
                    await asyncio.sleep(0.2)  # several changes are one piece of news
            finally:
                self._listeners -= 1

        return StreamingResponse(versions(), media_type="text/event-stream")

    async def asked(self, _request: Request) -> Response:
        """Return the questions as forms."""
        return replies.as_json({"questions": [asdict(question) for question in questions.FORMS]})

    async def names(self, request: Request) -> Response:
        """Return what can be typed into a field: the rows of ``ringwright list TOPIC``."""
        topic = request.path_params["topic"]
        if topic not in {field.listed for question in questions.FORMS for field in question.fields if field.listed}:
            raise HTTPException(404, "no such list")
        if topic not in self._listed:
            from ringwright.calls.lists import listing

            self._listed[topic] = await run_in_threadpool(listing, topic)
        return replies.as_json(self._listed[topic])

    async def browse(self, request: Request) -> Response:
        """Return what lies in a folder that may be opened."""
        return replies.as_json(
            {"entries": await run_in_threadpool(self._site.browse, request.query_params.get("path", ""))}
        )

    # ---- jobs

    async def open(self, request: Request) -> Response:
        """Open a file or a folder."""
        body = await replies.sent(request)
        path = self._site.allowed(str(body.get("path", "")))
        return replies.as_json(msgspec.to_builtins(self._site.open(str(path))))

    async def forget(self, request: Request) -> Response:
        """Remove what is kept of a job."""
        self._site.forget(request.path_params["job"])
        return replies.as_json({})

    async def follow(self, request: Request) -> Response:
        """Follow a job's files, or no more."""
        on = (await replies.sent(request)).get("on") is True
        return replies.as_json(msgspec.to_builtins(self._site.follow(request.path_params["job"], on)))

    async def stop_reading(self, request: Request) -> Response:
        """Cancel the reading of a job."""
        await self._site.commands.cancel(self._site.job(request.path_params["job"]).id)
        return replies.as_json({})

    async def report(self, request: Request) -> Response:
        """Return the report of a job."""
        return replies.report_page(self._site.report(request.path_params["job"]), request)

    async def summary(self, request: Request) -> Response:
        """Return the summary of a job."""
        return FileResponse(self._site.summary(request.path_params["job"]), media_type="application/json")

    async def timeline(self, request: Request) -> Response:
        """Return the rows and the operations of a job's timeline."""
        levels = await run_in_threadpool(self._site.levels, request.path_params["job"])
        rows = [asdict(row) for row in levels.rows]
        return replies.as_json(
            {
                "rows": rows,
                "operations": levels.operations,
                "end_us": levels.end_us,
                "note": levels.note,
                "events": int(levels.first[-1]),
            }
        )

    async def view(self, request: Request) -> Response:
        """Return what is in sight of a job's timeline."""
        get = replies.numbers(request)
        operations = frozenset(
            int(each) for each in request.query_params.get("operations", "").split(",") if each.isdigit()
        )
        sight = event_view.Sight(
            get("from", 0.0),
            get("to", 1.0),
            replies.row_numbers(request.query_params.get("rows", "")),
            int(get("pixels", 1000)),
            operations,
            int(get("least", 0)),
            int(get("communicator", -1)),
        )
        levels = await run_in_threadpool(self._site.levels, request.path_params["job"])
        return replies.as_json(await run_in_threadpool(event_view.view, levels, sight))

    async def event(self, request: Request) -> Response:
        """Return one event whole."""
        levels = await run_in_threadpool(self._site.levels, request.path_params["job"])
        return replies.as_json(event_view.event(levels, int(replies.numbers(request)("number", -1))))

    async def search(self, request: Request) -> Response:
        """Return the next event with a name that holds a text."""
        text = request.query_params.get("text", "")[:200]
        levels = await run_in_threadpool(self._site.levels, request.path_params["job"])
        back = request.query_params.get("back") == "1"
        after = replies.numbers(request)("after", -1.0)
        return replies.as_json(await run_in_threadpool(lambda: event_view.search(levels, text, after, back=back)))

    # ---- uploads

    async def upload(self, _request: Request) -> Response:
        """Begin an upload."""
        return replies.as_json({"upload": self._site.upload()})

    async def receive(self, request: Request) -> Response:
        """Take one file of an upload; what is not sent whole leaves nothing."""
        target = self._site.upload_file(request.path_params["upload"], request.query_params.get("name", ""))
        part = target.with_name(f"{target.name}{UNFINISHED}")
        size = 0
        try:
            with part.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self._upload_bytes:
                        raise HTTPException(413, f"a file of more than {self._upload_bytes:,} bytes is not taken")
                    await run_in_threadpool(file.write, chunk)
            part.rename(target)
        except OSError as error:
            raise HTTPException(507, f"it could not be kept: {error.strerror}") from error
        except ClientDisconnect:
            return Response(status_code=400)
        finally:
            part.unlink(missing_ok=True)
        return replies.as_json({"size_bytes": size})

    async def open_upload(self, request: Request) -> Response:
        """Open what was sent."""
        return replies.as_json(msgspec.to_builtins(self._site.open_upload(request.path_params["upload"])))

    # ---- runs

    async def ask(self, request: Request) -> Response:
        """Ask a question."""
        body = await replies.sent(request)
        answers = body.get("answers", {})
        if not isinstance(answers, dict):
            raise UsageError("answers are an object", remedy="load the page again")
        run = self._site.ask(str(body.get("question", "")), [*map(str, replies.listed(body, "jobs"))], answers)
        return replies.as_json({**msgspec.to_builtins(run), "command": shown(run)})

    async def again(self, request: Request) -> Response:
        """Ask the same once more."""
        run = self._site.again(request.path_params["run"])
        return replies.as_json({**msgspec.to_builtins(run), "command": shown(run)})

    async def cancel(self, request: Request) -> Response:
        """Cancel a run."""
        await self._site.commands.cancel(self._site.run(request.path_params["run"]).id)
        return replies.as_json({})

    async def open_result(self, request: Request) -> Response:
        """Open the Trace of a run as a job."""
        return replies.as_json(msgspec.to_builtins(self._site.open_result(request.path_params["run"])))

    async def answer(self, request: Request) -> Response:
        """Return a run and the text of its answer."""
        run = self._site.run(request.path_params["run"])
        folder = self._site.workspace.run_folder(run.id)
        text = await run_in_threadpool(
            replies.beginning if questions.of(run.question).ends else replies.ending, folder / OUT
        )
        errors = await run_in_threadpool(replies.beginning, folder / ERRORS)
        told: dict[str, object] = {**msgspec.to_builtins(run), "command": shown(run), "text": text, "errors": errors}
        if questions.of(run.question).rows and run.state == "done":
            told |= replies.table_of(text)
        return replies.as_json(told)

    async def page(self, request: Request) -> Response:
        """Return the page that a run has written."""
        return replies.report_page(self._site.of_run(request.path_params["run"], PAGE), request)

    async def out(self, request: Request) -> Response:
        """Return the whole text of an answer."""
        return FileResponse(self._site.of_run(request.path_params["run"], OUT), media_type="text/plain; charset=utf-8")


# long: every address and what answers it, one a line
def application(site: ServedJobs, upload_bytes: int) -> Starlette:
    """Return the application; an upload takes files of at most ``upload_bytes`` each."""
    views = Views(site, upload_bytes)

    @contextlib.asynccontextmanager
    async def alive(_app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(site.watch())
        try:
            yield
        finally:
            watching.cancel()
            await site.close()

    def get(path: str, view: Callable[..., Any]) -> Route:
        return Route(path, view, methods=["GET"])

    def post(path: str, view: Callable[..., Any]) -> Route:
        return Route(path, view, methods=["POST"])

    handlers: dict[Any, Any] = {RingwrightError: _refused, HTTPException: _http_error}
    return Starlette(
        lifespan=alive,
        exception_handlers=handlers,
        routes=[
            get("/", views.file),
            get("/static/{name}", views.file),
            get("/api/state", views.state),
            get("/api/news", views.news),
            get("/fleet.json", views.fleet),
            get("/job/{name:path}", views.named),
            get("/api/questions", views.asked),
            get("/api/names/{topic}", views.names),
            get("/api/browse", views.browse),
            post("/api/jobs", views.open),
            Route("/api/jobs/{job}", views.forget, methods=["DELETE"]),
            post("/api/jobs/{job}/follow", views.follow),
            post("/api/jobs/{job}/cancel", views.stop_reading),
            get("/api/jobs/{job}/summary", views.summary),
            get("/api/jobs/{job}/timeline", views.timeline),
            get("/api/jobs/{job}/view", views.view),
            get("/api/jobs/{job}/event", views.event),
            get("/api/jobs/{job}/search", views.search),
            get("/jobs/{job}/report", views.report),
            post("/api/uploads", views.upload),
            Route("/api/uploads/{upload}", views.receive, methods=["PUT"]),
            post("/api/uploads/{upload}/open", views.open_upload),
            post("/api/runs", views.ask),
            get("/api/runs/{run}", views.answer),
            post("/api/runs/{run}/cancel", views.cancel),
            post("/api/runs/{run}/again", views.again),
            post("/api/runs/{run}/open", views.open_result),
            get("/runs/{run}/page", views.page),
            get("/runs/{run}/out", views.out),
        ],
    )


@cache
def page_files() -> dict[str, bytes]:
    """Return the page's own files by name; nothing else in the package is served."""
    files = {path.name: path.read_bytes() for path in PAGES.iterdir() if path.suffix in TYPES}
    return files | {name: (REPORTS / name).read_bytes() for name in SHARED}


async def _refused(_request: Request, error: RingwrightError) -> Response:
    """Return an error in three parts."""
    status = 404 if isinstance(error, InputError) else 400
    told = {"what": error.what, "where": error.where, "try": error.remedy}
    return JSONResponse({"error": told}, status_code=status)


async def _http_error(_request: Request, error: HTTPException) -> Response:
    return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code)
