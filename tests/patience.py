"""How long tests wait. No test asks how quick this machine is: it may be doing four other things."""

from __future__ import annotations

HANG_S = 900.0  # for what must come on any machine, however busy: only what hangs takes this long
"""Seconds after which a process, a message or a file that a test waits for counts as never coming."""
