"""XML from elsewhere as a small tree of elements: no document types, bounded size, depth and number of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.parsers import expat

from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.findings import FileFindings

MOST_BYTES = 32 << 20
MOST_ELEMENTS = 400_000
MOST_ATTRIBUTES = 64
MOST_TEXT = 4096  # characters of an attribute
_PIECE = 1 << 16


@dataclass(slots=True)
class Element:
    """An element, its attributes as text, and the line where it begins."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)


class _RefusedError(Exception):
    """The file holds what no program needs."""


def read_elements(path: str | Path, findings: FileFindings, *, tags: Sequence[str]) -> Element | None:
    """Return the root of a file as deep as ``tags`` is long, or None with the reason in ``findings``.

    Elements of other tags are kept: the reader of the format says what becomes of them. Raises InputError where the file
    cannot be read at all.
    """
    builder = _Builder(tags)
    parser = expat.ParserCreate()
    parser.buffer_text = False
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = builder.doctype
    builder.parser = parser
    try:
        with Path(path).open("rb") as file:
            read = 0
            while piece := file.read(_PIECE):
                read += len(piece)
                if read > MOST_BYTES:
                    raise _RefusedError(f"larger than {MOST_BYTES >> 20} MiB")
                parser.Parse(piece, False)
            parser.Parse(b"", True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except _RefusedError as error:
        findings.add("xml", str(error), parser.CurrentLineNumber)
    except (expat.ExpatError, ValueError, LookupError) as error:
        findings.add("xml", f"not well-formed: {error}", parser.CurrentLineNumber)
    return None if findings.errors else builder.root


class _Builder:
    """Build the tree; refuse what is too deep, too much or of no use."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = tags
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser: expat.XMLParserType

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MOST_ELEMENTS:
            raise _RefusedError(f"more than {MOST_ELEMENTS:,} elements")
        if len(self.open) >= len(self.tags):
            raise _RefusedError(f"<{tag[:40]}> lies deeper than <{self.tags[-1]}>")
        if len(attributes) > MOST_ATTRIBUTES or any(len(text) > MOST_TEXT for text in attributes.values()):
            raise _RefusedError(f"the attributes of <{tag[:40]}> are too long")
        element = Element(tag, attributes, self.parser.CurrentLineNumber)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def end(self, tag: str) -> None:
        del tag
        self.open.pop()

    def doctype(self, *ignored: object) -> None:
        raise _RefusedError("a document type (it could define entities that explode)")
