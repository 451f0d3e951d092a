"""One HTML page that opens without a network: styles, script and data inline, every string escaped.

A content security policy allows the page's own script by its digest and nothing else, so that even a hole in the
escaping could run nothing. Large inputs are cut to a bounded page, and the page says what was cut.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Summary
from ringwright.analysis.summary_view import SeenCulprit, SeenFinding, SeenSummary
from ringwright.ground.documents import as_json
from ringwright.ground.units import format_count, format_size
from ringwright.reports import adders, bursts, cuts, overlap, tables, timed_tables, topology
from ringwright.reports.completion import absence, beside_the_verdict, complete, no_timeline
from ringwright.reports.draw import charts, ranks_picture
from ringwright.reports.layout import percent
from ringwright.reports.terminal import burst_text, ground_of

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_MOST_NOTES = 50
_MODULE = re.compile(r"^import [^;]*;\n|^export ", re.MULTILINE)
# Characters that end a script element or a JavaScript line become JSON escapes of themselves.
_JSON_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def page(summary: Summary | SeenSummary) -> str:
    """Return the page of a ``ringwright.summary/1`` object."""
    return render(
        "page.html.j2",
        parts=("elements", "timeline", "page_timeline", "player", "page_player"),
        **_content(complete(summary)),
    )


def inline(title: str, lead: str, drawn: Mapping[str, object], notes: Sequence[str], data: Mapping[str, object]) -> str:
    """Return the page of one picture, for a frame in another page; ``data`` is what its script draws."""
    from markupsafe import Markup

    parts = ("elements", "timeline", "page_timeline") if "timeline" in data else ()
    held = Markup(safe_json(data))
    return render("inline.html.j2", parts=parts, title=title, lead=lead, drawn=drawn, notes=notes, data=held)


def render(template: str, *, parts: Sequence[str] = (), **content: Any) -> str:
    """Return a page of this room's templates with styles and script inline; every string is escaped.

    ``parts`` are modules of this room that the page's script needs too, each after those that it imports.
    """
    from markupsafe import Markup

    script = "\n".join(_inline(name) for name in ("page", *parts))
    style = "\n".join(
        path.read_text(encoding="utf-8") for name in ("page", *parts) if (path := _HERE / f"{name}.css").is_file()
    )
    return (
        _templates()
        .get_template(template)
        .render(
            **content,
            style=Markup(style),
            script=Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        )
    )


@cache
def _inline(name: str) -> str:
    """Return a module as a part of a page's one script: what it imports stands before it."""
    text = (_HERE / f"{name}.js").read_text(encoding="utf-8")
    return _MODULE.sub("", text)


@cache
def _templates() -> Environment:
    """Return the templates of this room; compiled once: that takes several times what filling a page does."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def safe_json(value: Any) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), default=_plain).translate(_JSON_ESCAPES)


def _plain(value: object) -> object:
    return as_json(value) if is_dataclass(value) else str(value)


def script_data(value: object) -> str:
    """Return what a page's script reads, as markup that stands in the page's element of data."""
    from markupsafe import Markup

    return Markup(safe_json(value))


def default_name(first_input: str) -> Path:
    """Return the page's name for an input: ``job/nccl.log.gz`` -> ``nccl.html``, a folder ``job/`` -> ``job.html``."""
    if first_input == "-":
        return Path("stdin.html")
    name = Path(first_input).resolve().name
    for suffix in (".gz", ".zst", ".zstd", ".log", ".txt", ".out"):
        name = name.removesuffix(suffix)
    return Path(f"{name.strip('.') or 'job'}.html".replace("*", "all"))


def _content(view: SeenSummary) -> dict[str, Any]:
    """Return everything that the template shows; nothing is computed there."""
    palette = charts.colours(view)
    read = topology.page(view)
    matrix, members = cuts.matrix(view), cuts.communicator_map(view)
    ranks = ranks_picture.picture(view)
    return {
        "title": _title(view),
        "coverage": cuts.short(view.coverage, 600),
        "inputs": [cuts.short(name, 120) for name in view.inputs[:5]],
        "losses": view.losses[:3],
        "figures": _figures(view),
        "answer": _answer(view),
        "verdict": _verdict(view),
        "findings": [_finding(f, view.verdict) for f in beside_the_verdict(view)[:_MOST_NOTES]],
        "absence": absence(view),
        "tables": tables.all_tables(view) | timed_tables.all_tables(view),
        "ranks": ranks,
        "exposed": None if view.exposed_us is None else (overlap.us(view.exposed_us), overlap.us(view.overlapped_us)),
        "audit": view.overlap.audit[:_MOST_NOTES],
        "overlap_notes": [cuts.short(told, 600) for told in overlap.notes(view)[:_MOST_NOTES]],
        "palette": [{"op": cuts.short(op, 40), "colour": colour} for op, colour in palette.items()],
        "histograms": [
            (title, charts.histogram(view, palette, quantity))
            for title, quantity in (("Calls per size class", "count"), ("Bytes per size class", "bytes"))
        ],
        "matrix": matrix,
        "ground": cuts.short(ground_of(view)),
        "members": members,
        "roles": _roles(view),
        "timeline": charts.timeline(view, palette),
        "no_timeline": no_timeline(view),
        "bursts": bursts.page(view.bursts, view.bursts_unknown if view.operations else ""),
        "topology": read,
        "adders": adders.told_on_page(view),
        "provision": _provision(view),
        "ledger": {name: format_count(lines) for name, lines in view.ledger.items()},
        "warnings": [cuts.short(w, 600) for w in view.warnings[:_MOST_NOTES]],
        "limits": [cuts.short(w, 600) for w in view.limits[:_MOST_NOTES]],
        "data": script_data(
            {
                "matrix": matrix,
                "members": members,
                "timeline": None if not ranks or ranks.refused else ranks,
                "play": read.play if read else None,
            }
        ),
    }


def _title(view: SeenSummary) -> str:
    """Return what the job is called: its file or archive, or the folder that holds all of its files."""
    names = list(dict.fromkeys(str(name).partition("!")[0] for name in view.inputs))
    if not names:
        return "job"
    job = Path(names[0]) if len(names) == 1 else Path(os.path.commonpath(list(map(os.path.abspath, names))))
    return cuts.short(job.name or "job", 80)


def _answer(view: SeenSummary) -> dict[str, Any] | None:
    """Return the first thing that the page says; None for a summary that was kept without it."""
    answer = view.answer
    if not answer:
        return None
    return {
        "kind": answer.kind,
        "sentence": cuts.short(answer.sentence, 600),
        "figures": [(cuts.short(each.name, 60), cuts.short(each.value, 80)) for each in answer.figures],
        "command": cuts.short(answer.command, 900),
    }


def _figures(view: SeenSummary) -> list[tuple[str, str]]:
    """Return the row of large figures under the title."""
    expected = view.ranks_expected
    ranks = f"{view.ranks_seen:,}" + (f" of {expected:,}" if expected is not None else "")
    calls = sum(o.count or 0 for o in view.operations)
    moved = sum(o.bytes or 0 for o in view.operations)
    communicators = sum(c.count for c in view.communicators) or len(view.communicator_list)
    return [
        ("ranks seen", ranks),
        ("hosts", f"{view.hosts:,}"),
        ("calls", format_count(calls) if calls else "none read"),
        ("bytes in calls", format_size(moved) if moved else "not known" if calls else "none read"),
        ("communicators", format_count(communicators) if communicators else "none seen"),
        ("NCCL", cuts.short(", ".join(view.nccl_versions) or "not seen", 24)),
    ]


def _verdict(view: SeenSummary) -> dict[str, Any] | None:
    verdict = view.verdict
    if not verdict:
        return None
    return {
        "kind": cuts.short(verdict.kind),
        "ranks": cuts.short(", ".join(str(rank) for rank in verdict.ranks[:32]) or "unknown"),
        "hosts": cuts.short(", ".join(verdict.hosts[:16]) or "unknown"),
        "confidence": cuts.short(verdict.confidence, 24),
        "evidence": [cuts.short(item, 400) for item in verdict.evidence[1 if view.answer else 0 :]],
    }


def _finding(finding: SeenFinding, verdict: SeenCulprit | None) -> dict[str, Any]:
    """Return a finding as the page shows it; the verdict's evidence stands with the verdict, and only there."""
    is_verdict = verdict is not None and finding.evidence == verdict.evidence
    return {
        "severity": finding.severity if finding.severity in ("error", "warning") else "info",
        "title": cuts.short(finding.title[:1].upper() + finding.title[1:]),
        "detail": cuts.short(finding.detail, 900),
        "evidence": [] if is_verdict else [cuts.short(e, 400) for e in finding.evidence[:8]],
        "command": cuts.short(finding.command, 900),
    }


def _roles(view: SeenSummary) -> str:
    roles = ", ".join(f"{name} {size}" for name, size in view.roles.items() if size is not None)
    return cuts.short(roles or "none inferred")


def _provision(view: SeenSummary) -> list[tuple[str, str]]:
    """Return the lines of the provisioning section; what is unknown says why."""
    need = view.provision
    if not need:
        return []
    per_nic, steps = need.bytes_per_step_per_nic, need.steps
    lines = [
        ("Steps", "not found" if steps is None else format_count(steps)),
        ("Bytes per step and NIC", "unknown: no NIC or no step was seen" if per_nic is None else format_size(per_nic)),
        ("Largest burst", burst_text(need) or "unknown: no times in the input"),
    ]
    shares = sorted(need.share_per_op or [], key=lambda row: -row.share)[:8]
    if shares:
        lines.append(("Share of bytes", ", ".join(f"{cuts.short(s.op, 40)} {percent(s.share)}" for s in shares)))
    return [*lines, ("Ground", cuts.short(need.note or "not stated", 600))]
