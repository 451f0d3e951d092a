"""Logs of Megatron-LM: iterations as steps, timers as phases of them; DeepSpeed's ``wall_clock_breakdown`` prints timers alike.

A timer tells how long a stretch of code took, on the rank that prints, or the shortest and the longest of all ranks. What it
moved it does not tell: none of these rows is an operation.

Sources: ``megatron/core/timers.py`` and ``megatron/training/training.py`` of
NVIDIA/Megatron-LM, releases of 2021 to megatron-core 0.9; ``deepspeed/utils/timer.py``.
"""

from __future__ import annotations

from ringwright.formats.sources.megatron_log.reader import read_megatron_log

__all__ = ["read_megatron_log"]
