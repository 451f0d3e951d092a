"""Which of several MSCCL files serves a call of which size: the configuration that Microsoft's runtime reads.

The runtime asks for ``minbytes`` and ``maxbytes``, the tools that come with it write ``minBytes`` and ``maxBytes``; both stand
there. A call of n bytes takes the first file with min <= n < max; no upper end: all that is larger. Azure's scheduler and RCCL
need no such file: they read every file of a folder (``MSCCL_ALGO_DIR``), and the sizes that stand in each.
Source: microsoft/msccl (src/graph/topo.cc), microsoft/msccl-tools (msccl/autosynth).
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

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
