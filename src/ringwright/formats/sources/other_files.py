"""What a file that is no recording looks like, in a few words for an error."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import document

_MAGIC = (
    (b"\x7fELF", "an ELF program or library"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PAR1", "a Parquet table"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"RIFF", "a RIFF container"),
)
_WORKBOOK = (b"[Content_Types].xml", b"xl/")
# The columns of what Holistic Trace Analysis makes of traces: sums by rank, kernel or annotation, without groups and sizes.
_HTA_COLUMNS = (
    {"rank", "comp_comm_overlap_pctg"},
    {"rank", "idle_time(ns)", "compute_time(ns)"},
    {"rank", "idle_category", "idle_time"},
    {"kernel_type", "sum", "percentage"},
    {"name", "sum (ns)", "max (ns)", "kernel_type", "rank"},
)
_ROCPROF = re.compile(rb'"rocprofiler-sdk|"rocprof')
_KEY = re.compile(rb'"([^"\\\n]{1,40})"\s*:')
_BINARY_SHARE = 0.1
_MOST_KEYS = 4
_EXCERPT = 60


def looks_like(head: bytes) -> str:
    """Return what a file that begins with ``head`` looks like: ``JSON with the keys "a", "b"``, ``binary data``."""
    if not head:
        return "an empty file"
    if head.startswith(b"PK\x03\x04") and any(name in head for name in _WORKBOOK):
        return "an Excel workbook; TraceLens writes the same tables as CSV, which are read: --output_csvs_dir DIR"
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    if head[257:262] == b"ustar":
        return "a tar archive"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _is_binary(head):
        return "binary data"
    if document(text):
        return _json(text)
    if text[:1] == b"<":
        return f"XML or HTML that begins {_excerpt(text)}"
    return _table(text) or f"text that begins {_excerpt(text)}"


def _is_binary(head: bytes) -> bool:
    strange = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
    bad = head.decode("utf-8", "replace").count("\ufffd")
    return b"\x00" in head or strange + bad > _BINARY_SHARE * len(head)


def _json(text: bytes) -> str:
    if _ROCPROF.search(text):
        return "JSON of rocprof (kernels and copies of an AMD GPU), which is not read"
    keys = list(dict.fromkeys(match.decode("utf-8", "replace") for match in _KEY.findall(text)))[:_MOST_KEYS]
    named = ", ".join(f'"{_printable(key)}"' for key in keys)
    return f"JSON with the keys {named}" if keys else "JSON without keys"


def _table(text: bytes) -> str:
    columns = {name.strip(b' "\r').decode("utf-8", "replace") for name in text.split(b"\n", 1)[0][:4096].split(b",")}
    if any(wanted <= columns for wanted in _HTA_COLUMNS):
        return (
            "a table of Holistic Trace Analysis, which holds sums without groups, sizes and calls; "
            "give the traces that it was made of (*.pt.trace.json)"
        )
    lines = [line for line in text.split(b"\n")[:20] if line.strip()]
    for separator, name in ((b",", "commas"), (b"\t", "tabs"), (b":", "colons")):
        counts = {line.count(separator) for line in lines[:-1] or lines}
        if len(lines) > 1 and counts and min(counts) >= 2 and max(counts) == min(counts):
            return f"a table of {min(counts) + 1} columns between {name} that begins {_excerpt(text)}"
    return ""


def _excerpt(text: bytes) -> str:
    first = text.split(b"\n", 1)[0].strip()
    shown = _printable(first[:_EXCERPT].decode("utf-8", "replace"))
    return f"'{shown}{'...' if len(first) > _EXCERPT else ''}'"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
