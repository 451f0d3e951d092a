"""Where advice goes: the terminal, JSON, one page, or a folder with the files of every change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.cli import reading
from ringwright.ground import drafts

if TYPE_CHECKING:
    from ringwright.advise.advise import Advised

PAGES = (".html", ".htm")


def claimed(output: Path | None, *, force: bool) -> Path | None:
    """Return where files are to be written, claimed before minutes are spent; UsageError where they may not be."""
    from ringwright.advise import folder
    from ringwright.formats.exports.placement import claim_file

    if output is None:
        return None
    return claim_file(output, force=force) if output.suffix in PAGES else folder.claim(output, force=force)


def typed(options: Mapping[str, object | None]) -> list[str]:
    """Return options as they are typed, those that were left out left out."""
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def show(made: Advised, command: str, output: Path | None, *, json: bool) -> int:
    """Print the answer, and write what was asked for."""
    from ringwright.advise import folder
    from ringwright.advise.pictures import drawn_steps
    from ringwright.ground.scrub import scrub
    from ringwright.reports.pages import advised_page
    from ringwright.reports.steps import advised

    if not json:
        advised.write(made.document, sys.stdout)  # before a file that cannot be written
    written = None
    if output is not None:
        page = advised_page.advice_page(made.document, drawn_steps(made), scrub(command))
        if output.suffix in PAGES:
            drafts.write(output, page)
        else:
            written = folder.write(made, page, output)
    if json:
        reading.print_json(dict(made.document))
    elif written is not None:
        advised.write_files(written.folder, written.names, sys.stdout)
    elif output is not None:
        print(f"wrote {output}; open it in a browser")
    return 0
