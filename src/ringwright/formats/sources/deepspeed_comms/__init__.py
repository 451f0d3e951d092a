"""DeepSpeed's communication logger: a line for every call (``verbose``), and the tables and the dictionary of ``log_summary``.

Rates there are Gbit/s, sizes are rounded to 0.01 of a power of 1024, and the world's size stands for that of every group.
From release 0.18.3 on the printed latencies add up within a name; where lines show that, it is undone, else they are refused.
Sources: ``deepspeed/utils/comms_logging.py``, ``comm/comm.py`` and ``utils/timer.py`` of releases 0.9.5 to 0.19.8.
"""

from __future__ import annotations

from ringwright.formats.sources.deepspeed_comms.reader import read_deepspeed_comms

__all__ = ["read_deepspeed_comms"]
