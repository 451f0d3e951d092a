"""Advice as a folder: the object, the page, and the files of every change, each read back and held to what was advised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.formats.exports.placement import claim_folder
from ringwright.formats.settings.msccl_config import msccl_config, read_msccl_config
from ringwright.ground import drafts
from ringwright.ground.errors import OutputError, RingwrightError, UsageError
from ringwright.model.threadblocks.msccl_load import MscclLoad
from ringwright.search.runtime_files import protocol_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringwright.advise.advise import Advised
    from ringwright.advise.exported import AdvisedFile

ADVICE, PAGE = "advice.json", "advice.html"
REPORT = "report this; nothing was written"
PROGRAM, SELECTOR = "msccl.xml", "msccl-config.xml"


@dataclass(frozen=True)
class WrittenAdvice:
    """The files of a folder in their order: the object and the page first, then those of each change."""

    folder: Path
    names: tuple[str, ...]


def claim(output: Path, *, force: bool) -> Path:
    """Return the folder that advice is to be written into, before it is searched for.

    Raises UsageError where something stands there and ``force`` is not given, or where it is a folder of something else: a
    folder of advice is replaced whole.
    """
    if output.is_dir() and any(output.iterdir()) and not (output / ADVICE).is_file():
        raise UsageError(f"{output} holds other files", remedy="name a folder that is not there yet with -o")
    if output.is_dir() and not any(output.iterdir()):
        return output
    return claim_folder(output, force=force)


def write(made: Advised, page: str, output: Path) -> WrittenAdvice:
    """Write the folder and return its files.

    Every file of a change is read back before the folder stands; OutputError where one says something else than was advised.
    """
    numbered = list(_numbered(made))
    for name, _ in numbered:
        made.document["changes"][int(name.partition("-")[0]) - 1]["files"].append(name)
    with drafts.draft_folder(output) as draft:
        drafts.write(draft / ADVICE, json.dumps(made.document, indent=1) + "\n")
        drafts.write(draft / PAGE, page)
        for name, file in numbered:
            drafts.write(draft / name, file.data)
            read_back(draft / name, file)
        loads = [
            MscclLoad(str(output.resolve() / name), 0, 0, protocol_of(file.data))
            for name, file in numbered
            if name.endswith(PROGRAM)
        ]
        if loads:
            drafts.write(draft / SELECTOR, msccl_config(loads))
            _same(SELECTOR, read_msccl_config(draft / SELECTOR), tuple(loads))
    names = (ADVICE, PAGE, *(name for name, _ in numbered), *([SELECTOR] if loads else []))
    return WrittenAdvice(output, names)


def read_back(path: Path, file: AdvisedFile) -> None:
    """Raise OutputError where a written file cannot be read, or does not say what was advised."""
    try:
        says = file.says(path)
    except RingwrightError as error:
        raise OutputError(
            f"{file.name} was written and cannot be read back", where=error.what, remedy=REPORT
        ) from error
    _same(file.name, says, file.advised)


def _same(name: str, says: object, wanted: object) -> None:
    if says != wanted:
        raise OutputError(
            f"{name}, read back, says something else than was advised",
            where=f"it says {says}, advised was {wanted}",
            remedy=REPORT,
        )


def _numbered(made: Advised) -> Iterator[tuple[str, AdvisedFile]]:
    """Yield the files with their names in the folder: behind the number of their change."""
    for number, files in enumerate(made.files, 1):
        for file in files:
            yield f"{number}-{file.name}", file
