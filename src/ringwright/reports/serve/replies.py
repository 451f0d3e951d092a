"""What is read of a request and written into an answer, checked: bodies, numbers of an address, JSON, reports, parts of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import FileResponse, Response

from ringwright.analysis.timeline.event_view import MOST_ROWS as MOST_ROW_NUMBERS
from ringwright.ground.errors import UsageError
from ringwright.reports.serve.gate import REPORT_POLICY

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_BODY = 1 << 20
MOST_OUT = 1 << 20  # bytes of an answer's text that the page shows
MOST_ROWS = 2000
FARTHEST = 1e15  # of numbers in an address: a timeline of thirty years


async def sent(request: Request) -> Mapping[str, Any]:
    """Return the object that was sent; UsageError for anything else."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            raise UsageError("that is too much for one question", remedy="shorten it")
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError("what was sent is no JSON", remedy="load the page again") from error
    if not isinstance(body, dict):
        raise UsageError("what was sent is no object", remedy="load the page again")
    return body


def listed(body: Mapping[str, Any], name: str) -> list[object]:
    """Return a list of a body, empty where it has none; UsageError for anything else."""
    value = body.get(name, [])
    if not isinstance(value, list) or len(value) > 64:
        raise UsageError(f"{name} is a list", remedy="load the page again")
    return value


def numbers(request: Request) -> Callable[[str, float], float]:
    """Return what reads a number of the address; UsageError for what is none."""

    def get(name: str, usual: float) -> float:
        text = request.query_params.get(name, "")
        try:
            value = float(text) if text else usual
        except ValueError:
            value = float("nan")
        if not abs(value) <= FARTHEST:
            raise UsageError(f"{name}={text[:40]} is no number of use", remedy="load the page again")
        return value

    return get


def row_numbers(text: str) -> list[int]:
    """Return the numbers of ``0-7,12``; UsageError for anything else, or for too many."""
    rows: list[int] = []
    for part in text.split(",")[:MOST_ROW_NUMBERS] if text else ():
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal() and len(low) < 9 and len(high) < 9):
            raise UsageError(f"rows={part[:40]} are no rows", remedy="load the page again")
        rows.extend(range(int(low), min(int(high or low), int(low) + MOST_ROW_NUMBERS) + 1))
    return rows[:MOST_ROW_NUMBERS]


def as_json(document: Any) -> Response:
    """Return an object as JSON."""
    return Response(msgspec.json.encode(document), media_type="application/json")


def report_page(path: Path, request: Request) -> Response:
    """Return a report, which can ask this server nothing; with ``?download=1`` as a file to keep or send."""
    headers = {"content-security-policy": REPORT_POLICY}
    name = f"{path.parent.name}-{path.name}" if request.query_params.get("download") == "1" else None
    return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers, filename=name)


def beginning(path: Path) -> str:
    """Return the first MOST_OUT bytes of a file as text, none where there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_OUT).decode(errors="replace")
    except OSError:
        return ""


def ending(path: Path) -> str:
    """Return the last bytes of a file that grows as text, none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - MOST_OUT // 8, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def table_of(text: str) -> Mapping[str, Any]:
    """Return the rows of an answer that is a table, as many as a page shows."""
    try:
        answer = json.loads(text)
        rows = answer.get("rows", [])
    except (ValueError, AttributeError):
        return {}
    return {"columns": answer.get("columns", []), "rows": rows[:MOST_ROWS], "of": len(rows)}
