"""What a benchmark that ended without a row says of its own end."""

from __future__ import annotations

import re

# `host: Test NCCL failure common.cu:1012 'unhandled system error / '` of nccl-tests and rccl-tests, and what launchers print.
_OWN = (
    re.compile(r"(?P<said>Test \w+ failure [\w./-]+:\d+ .{0,300})"),
    # From the begin of a word on: tried at each of its letters, a word of a million would take as many squared.
    re.compile(r"(?P<said>(?<![\w.-])[\w.-]+:\d+ NCCL WARN .{1,300})"),
    re.compile(r"(?P<said>(?<![\w./-])(?:[\w./-]+: )?error while loading shared libraries: .{1,300})"),
    re.compile(r"(?P<said>(?:invalid|unrecognized|unrecognised) (?:option|argument)s?\b.{0,200})", re.IGNORECASE),
    re.compile(r"(?P<said>(?:Segmentation fault|Bus error|Aborted|Killed|out of memory).{0,200})"),
    re.compile(r"(?P<said>(?:srun|mpirun|prterun|mpiexec|slurmstepd)\b.{0,40}\berror\b.{0,200})"),
    re.compile(r"(?P<said>\bCannot open .{1,200})"),
    re.compile(r"(?P<said>Test failure [\w./-]+:\d+)"),
    re.compile(r"(?P<said>\bExit code: +[1-9]\d*)"),
)
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
MOST_TEXT = 1 << 20  # an error is near an end of what a run that failed has printed


def own_error(text: str) -> str:
    """Return the first error that a benchmark's output names, the most telling kind of line first; "" for none."""
    near = text if len(text) <= 2 * MOST_TEXT else text[:MOST_TEXT] + text[-MOST_TEXT:]
    for pattern in _OWN:
        found = pattern.search(near)
        if found is not None:
            return _NOT_PRINTED.sub(" ", found["said"]).strip()
    return ""
