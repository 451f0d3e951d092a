"""The laws of rows as they are read: words under the words of the header, and times that can be."""

from __future__ import annotations

from ringwright.bounds.laws.law import Law

_HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong"
LAWS = (
    Law(
        "columns",
        "the words of a row stand under the words of its header",
        "NVIDIA/nccl-tests, src/common.cu",
        "ringwright.formats.sources.tables.nccl_columns:misplaced",
        kept=((_HEADER, "1024  256  float  sum  -1  20.1  0.05  0.09  0"),),
        broken=(
            (_HEADER, "1024  256  20.1  sum  -1  float  0.05  0.09  0"),
            (_HEADER, "1024  256  float  sum  -1  20.1"),
        ),
    ),
    Law(
        "time",
        "what was measured took time: above 0, and a number",
        "a duration is a difference of two readings of a steady clock: ISO C++, [time.clock.steady]",
        "ringwright.formats.sources.tracelens.tables:no_time",
        kept=(("12.5",), ("1e3",)),
        broken=(("0",), ("-3",), ("soon",), (None,)),
    ),
)
