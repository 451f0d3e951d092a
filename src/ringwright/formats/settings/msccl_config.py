"""Which of several MSCCL files serves a call of which size: the configuration that Microsoft's runtime reads.

The runtime asks for ``minbytes`` and ``maxbytes``, the tools that come with it write ``minBytes`` and ``maxBytes``; both
stand there. A call of n bytes takes the first file with min <= n < max; no upper end: all that is larger. Azure's scheduler
and RCCL need no such file: they read every file of a folder (``MSCCL_ALGO_DIR``), and the sizes that stand in each. Source:
microsoft/msccl (src/graph/topo.cc), microsoft/msccl-tools (msccl/autosynth).

Read back, both spellings of a limit are taken, ``minbytes`` and ``minBytes``; where they differ, the runtime's own, the first
one, counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn
from xml.sax.saxutils import quoteattr

from ringwright.formats.sources.elements import Element, read_elements
from ringwright.formats.sources.findings import FileFindings
from ringwright.ground.errors import InputError
from ringwright.model.threadblocks.msccl import DEPTH
from ringwright.model.threadblocks.msccl_load import MscclLoad

MOST_FILES = 4  # that the runtime loads


def msccl_config(loads: Iterable[MscclLoad]) -> bytes:
    """Return the file's bytes."""
    lines = ["<msccl_algos>", *(_line(each) for each in loads), "</msccl_algos>"]
    return ("\n".join(lines) + "\n").encode()


def _line(load: MscclLoad) -> str:
    ends = (("min", load.low), *((("max", load.high),) if load.high else ()))
    window = "".join(f' {end}bytes="{size}" {end}Bytes="{size}"' for end, size in ends)
    return f'  <load path={quoteattr(load.path)}{window} proto="{load.protocol}"/>'


# read back


_REMEDY = "compare with what ringwright.formats.settings.msccl_config writes"
_LARGEST = 1 << 62


def read_msccl_config(path: str | Path) -> tuple[MscclLoad, ...]:
    """Return the rows of a configuration in their order; InputError names the line that is wrong."""
    findings = FileFindings(path)
    root = read_elements(path, findings, tags=("msccl_algos", "load"))
    if root is None or root.tag != "msccl_algos":
        _fail("a <msccl_algos> with a <load> for each file should stand here", str(path))
    return tuple(_load(each, f"{path}:{each.line}") for each in root.children)


def _load(element: Element, where: str) -> MscclLoad:
    named = element.attributes.get("path", "")
    protocol = element.attributes.get("proto", "Simple")
    if element.tag != "load" or not named or protocol not in DEPTH:
        _fail(f"a <load> has a path and one of {', '.join(DEPTH)}", where)
    low, high = (_bytes(element, end, where) for end in ("min", "max"))
    if high and high <= low:
        _fail(f"no call is of {low} B or more and below {high} B", where)
    return MscclLoad(named, low, high, protocol)


def _bytes(element: Element, end: str, where: str) -> int:
    text = element.attributes.get(f"{end}bytes", element.attributes.get(f"{end}Bytes", "0"))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _LARGEST):
        _fail(f"{end}bytes '{text[:30]}' is no number of bytes", where)
    return int(text)


def _fail(what: str, where: str) -> NoReturn:
    raise InputError(f"bad configuration of MSCCL: {what}", where=where, remedy=_REMEDY)
