"""Corruption: how many packets a bit error rate destroys behind the forward error correction of a 400 Gb/s link.

RS(544, 514) over symbols of 10 bits mends 15 symbols of a code word (IEEE 802.3, clause 91 and 119); a packet is lost where one
of its code words cannot be mended. ``ber`` is the rate in front of the correction.
"""

from __future__ import annotations

import math

SYMBOL_BITS, SYMBOLS, DATA_SYMBOLS = 10, 544, 514
MENDED = (SYMBOLS - DATA_SYMBOLS) // 2
WORD_BYTES = DATA_SYMBOLS * SYMBOL_BITS / 8
FULL_PACKET = 4096 + 82  # bytes on the wire, where packets have no size


def lost_words(ber: float) -> float:
    """Return the share of code words with more wrong symbols than can be mended, at a share ``ber`` of wrong bits."""
    if ber <= 0:
        return 0.0
    wrong = -math.expm1(SYMBOL_BITS * math.log1p(-min(ber, 0.5)))
    logs = math.log(wrong), math.log1p(-wrong) if wrong < 1 else -math.inf
    tail = 0.0
    for count in range(MENDED + 1, SYMBOLS + 1):
        combinations = math.lgamma(SYMBOLS + 1) - math.lgamma(count + 1) - math.lgamma(SYMBOLS - count + 1)
        right = (SYMBOLS - count) * logs[1] if count < SYMBOLS else 0.0
        tail += math.exp(combinations + count * logs[0] + right)
    return min(1.0, tail)


def lost_share(ber: float, size_bytes: int) -> float:
    """Return the share of packets of ``size_bytes`` that are lost at a share ``ber`` of wrong bits before correction."""
    word = lost_words(ber)
    words = math.ceil(size_bytes / WORD_BYTES)
    return 1.0 if word >= 1 else -math.expm1(words * math.log1p(-word))
