"""Control: how fast a connection may send, by what came back. One function for each event, by the protocol's ``control``.

Windows are in packets, rates in ps a byte. Only sums, products and quotients of floats occur, so that the compiled twin agrees to
the last bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.costs.protocols import BBR, CUBIC, DCQCN, DELAY, FIXED, RENO

if TYPE_CHECKING:
    from ringwright.engines.packets.connection import Connection, SentPacket

SECOND = 1e12
FIRST_WINDOW = 10.0  # packets (RFC 6928)
LEAST = 2.0
# CUBIC: RFC 9438.
CUBIC_C, CUBIC_BETA = 0.4, 0.7
# DCQCN: Zhu et al., SIGCOMM 2015; increments in shares of the line's rate (40 Mb/s and 400 Mb/s of 40 Gb/s there).
G, STEP_PS, FAST_STEPS, ADD_SHARE, MORE_SHARE, LEAST_SHARE = 1 / 256, 55_000_000, 5, 0.001, 0.01, 0.001
NOTICE_PS = 50_000_000
# Delay: Kumar et al. (Swift), SIGCOMM 2020, with a target of twice the idle round trip.
TARGET_TRIPS, DELAY_BETA, MOST_CUT = 2.0, 0.8, 0.5
# BBR: Cardwell et al., ACM Queue 2016.
STARTUP, DRAIN, PROBE = 0, 1, 2
HIGH_GAIN, FULL_GROWTH, FULL_ROUNDS, BBR_WINDOW, ROUNDS = 2.885, 1.25, 3, 2.0, 10
CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def start(c: Connection) -> None:
    """Set what a connection begins with: as one that has been used for a while and lost nothing."""
    c.ssthresh = 1e18
    if c.control in (RENO, CUBIC, BBR):
        c.srtt, c.rttvar = float(c.trip_ps), c.trip_ps / 2.0
    if c.control in (RENO, CUBIC):
        c.cwnd = max(FIRST_WINDOW, float(c.trip_ps) / max(c.line_ps * c.wire_bytes, 1e-9))
    elif c.control == BBR:
        c.cwnd = FIRST_WINDOW
    else:
        c.cwnd = float(c.most_window)
    c.gap_ps = c.line_ps


def acked(c: Connection, packets: int, now: int, trip_ps: int, record: SentPacket | None, *, clean: bool) -> None:
    """Take in that ``packets`` arrived; ``trip_ps`` is the round trip of the last of them, 0 where it is not known.

    ``clean``: all before one more arrived, and nothing new is missing.
    """
    if c.control == BBR:
        _bbr_acked(c, packets, now, trip_ps, record)
    elif c.control == DELAY:
        _delay_acked(c, packets, now, trip_ps)
    elif c.control in (RENO, CUBIC) and c.recovering and not c.restarting:
        reduced(c, packets, clean=clean)
    elif c.control in (RENO, CUBIC):
        c.used_at = now  # an answer to data counts as use of the window, however little is under way
        if not is_limited(c):
            return
        if c.cwnd < c.ssthresh:
            c.cwnd = min(c.cwnd + packets, c.ssthresh)
        elif c.control == RENO:
            c.cwnd += packets / c.cwnd
        else:
            _cubic_acked(c, packets, now)


def is_limited(c: Connection) -> bool:
    """Return whether a window of TCP may grow: it was used up, or, in slow start, by more than a half (Linux)."""
    return c.limited or (c.cwnd < c.ssthresh and c.cwnd < 2.0 * c.most_out)


def woken(c: Connection, now: int, rto_ps: int) -> None:
    """Halve the window of a connection that begins to send for each time-out for which it was silent (RFC 2861, Linux)."""
    silent = now - c.sent_at
    if c.control not in (RENO, CUBIC) or silent <= rto_ps:
        return
    least = min(FIRST_WINDOW, c.cwnd)
    c.ssthresh = max(c.ssthresh, 0.75 * c.cwnd)
    silent -= rto_ps
    while silent > 0 and c.cwnd > least:
        c.cwnd /= 2.0
        silent -= rto_ps
    c.cwnd = max(c.cwnd, least)
    c.used, c.used_at = 0, now


def sent(c: Connection, now: int, rto_ps: int, *, limited: bool) -> None:
    """Take in how much of its window a connection of TCP uses; one that uses less after a silence loses half of the rest."""
    out = c.nxt - c.una
    if c.una >= c.usage_end or limited or (not c.limited and out > c.most_out):
        c.limited, c.most_out, c.usage_end = limited, out, c.nxt
    if is_limited(c):
        c.used, c.used_at = 0, now
        return
    c.used = max(c.used, out)
    if c.control in (RENO, CUBIC) and now - c.used_at >= rto_ps:
        used = max(float(c.used), FIRST_WINDOW)
        if used < c.cwnd and not c.recovering:
            c.ssthresh = max(c.ssthresh, 0.75 * c.cwnd)
            c.cwnd = (c.cwnd + used) / 2.0
        c.used, c.used_at = 0, now


def lost(c: Connection, now: int) -> None:
    """Take in that a packet was lost, once for all that are lost in one round trip."""
    if c.control not in (RENO, CUBIC):
        return
    if c.control == CUBIC:
        c.most_cwnd = c.cwnd * (1.0 + CUBIC_BETA) / 2.0 if c.cwnd < c.most_cwnd else c.cwnd
        c.epoch = 0
    c.ssthresh = max(c.cwnd * (CUBIC_BETA if c.control == CUBIC else 0.5), LEAST)
    c.prior, c.came, c.went = c.cwnd, 0, 0


def reduced(c: Connection, packets: int, *, clean: bool) -> None:
    """Shrink the window while it recovers, by as much as arrives: proportional rate reduction (RFC 6937, Linux)."""
    pipe = c.pipe()
    c.came += packets
    less = int(c.ssthresh) - pipe
    send = min(less, max(c.came - c.went, packets) + clean)
    if less < 0:
        send = math.ceil(c.ssthresh * c.came / c.prior) - c.went
    c.cwnd = float(pipe + max(send, 0 if c.went else 1))


def doubted(c: Connection) -> None:
    """Take in that packets count as missing although nothing came."""
    if c.control in (RENO, CUBIC) and not c.restarting:
        reduced(c, 1, clean=False)


def recovered(c: Connection) -> None:
    """Take in that all that was under way when a packet was lost has arrived."""
    if c.control in (RENO, CUBIC) and not c.restarting:
        c.cwnd = c.ssthresh


def timed_out(c: Connection, now: int) -> None:
    """Take in that nothing came back in time."""
    if c.control in (RENO, CUBIC):
        if not c.retries:
            lost(c, now)
        c.cwnd = 1.0
    elif c.control == DELAY:
        c.cwnd = max(c.cwnd * MOST_CUT, 1.0)


def window(c: Connection) -> int:
    """Return how many packets may be under way."""
    return max(1, min(int(c.cwnd), c.most_window)) if c.control != FIXED else c.most_window


def spaced(c: Connection, now: int) -> float:
    """Return the ps a byte at which it sends now, 0 where it sends as fast as it can."""
    if c.control == DCQCN:
        _dcqcn_until(c, now)
        return c.gap_ps if c.slowed else 0.0
    if c.control == BBR and c.bandwidth > 0.0:
        return 1.0 / (paced(c) * c.wire_bytes)
    return 0.0


def paced(c: Connection) -> float:
    """Return the packets a ps that BBR sends, at first as many as its first window a round trip."""
    return c.bandwidth * _gain(c) if c.bandwidth > 0.0 else HIGH_GAIN * c.cwnd / max(c.srtt, 1.0)


def _cubic_acked(c: Connection, packets: int, now: int) -> None:
    if not c.epoch:
        c.epoch, c.friendly = now, c.cwnd
        c.origin = max(c.most_cwnd, c.cwnd)
        c.turn_s = cube_root((c.origin - c.cwnd) / CUBIC_C)
    away = (now + c.trip_ps - c.epoch) / SECOND - c.turn_s
    target = c.origin + CUBIC_C * (away * away * away)
    if target > c.cwnd:
        c.cwnd += packets * (target - c.cwnd) / c.cwnd
    else:
        c.cwnd += packets * 0.01 / c.cwnd
    c.friendly += packets * (3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA)) / c.friendly
    c.cwnd = max(c.cwnd, c.friendly)


def cube_root(value: float) -> float:
    """Return the cube root of a number of 0 or more, by Newton's steps: the same bits on every machine."""
    if value <= 0.0:
        return 0.0
    root = max(1.0, value)
    for _ in range(80):
        nearer = (2.0 * root + value / (root * root)) / 3.0
        if nearer >= root:
            break
        root = nearer
    return root


def _delay_acked(c: Connection, packets: int, now: int, trip_ps: int) -> None:
    target = TARGET_TRIPS * c.trip_ps
    if trip_ps <= target:
        if c.limited:
            c.cwnd += packets / c.cwnd if c.cwnd >= 1.0 else packets
    elif now - c.cut_at > c.srtt:
        c.cwnd *= max(1.0 - DELAY_BETA * (trip_ps - target) / trip_ps, MOST_CUT)
        c.cut_at = now
    c.cwnd = min(max(c.cwnd, 1.0), float(c.most_window))


def noticed(c: Connection, now: int) -> None:
    """DCQCN: take in a notice that a packet was marked."""
    _dcqcn_until(c, now)
    if not c.slowed:
        c.slowed, c.gap_ps, c.alpha = True, c.line_ps, 1.0
    c.target_ps = c.gap_ps
    c.gap_ps = min(c.gap_ps / (1.0 - c.alpha / 2.0), c.line_ps / LEAST_SHARE)
    c.alpha = (1.0 - G) * c.alpha + G
    c.steps, c.alpha_at, c.faster_at = 0, now + STEP_PS, now + STEP_PS


def _dcqcn_until(c: Connection, now: int) -> None:
    """Let the timers of DCQCN pass up to now."""
    while c.slowed:
        at = min(c.alpha_at, c.faster_at)
        if at > now:
            return
        if c.alpha_at <= c.faster_at:
            c.alpha *= 1.0 - G
            c.alpha_at += STEP_PS
        else:
            c.faster_at += STEP_PS
            _dcqcn_faster(c)


def _dcqcn_faster(c: Connection) -> None:
    c.steps += 1
    target = 1.0 / c.target_ps
    if c.steps > FAST_STEPS:
        target += (MORE_SHARE if c.steps > 2 * FAST_STEPS else ADD_SHARE) / c.line_ps
        target = min(target, 1.0 / c.line_ps)
        c.target_ps = 1.0 / target
    c.gap_ps = 2.0 / (target + 1.0 / c.gap_ps)
    if c.gap_ps <= c.line_ps * 1.001:
        c.slowed, c.gap_ps = False, c.line_ps


def _gain(c: Connection) -> float:
    if c.phase == STARTUP:
        return HIGH_GAIN
    return 1.0 / HIGH_GAIN if c.phase == DRAIN else CYCLE[c.cycle]


def _bbr_acked(c: Connection, packets: int, now: int, trip_ps: int, record: SentPacket | None) -> None:
    """BBR: measure what is delivered, and go through its phases. Bandwidths are in packets a ps."""
    c.delivered += packets
    c.delivered_at = now
    if record is None:
        return
    if trip_ps and (not c.least_trip or trip_ps < c.least_trip):
        c.least_trip = trip_ps
    if record.delivered >= c.round_end:
        c.round += 1
        c.round_end = c.delivered
        _bbr_round(c)
    elapsed = now - record.delivered_at
    if elapsed > 0:
        _bbr_measured(c, (c.delivered - record.delivered) / elapsed)
    in_flight = c.bandwidth * c.least_trip
    if c.phase == DRAIN and c.pipe() <= in_flight:
        c.phase, c.cycle, c.cycle_at = PROBE, 2, now
    if c.phase == PROBE and now - c.cycle_at > c.least_trip:
        c.cycle, c.cycle_at = (c.cycle + 1) % len(CYCLE), now
    c.cwnd = max((HIGH_GAIN if c.phase == STARTUP else BBR_WINDOW) * in_flight + 3.0, 4.0)


def _bbr_measured(c: Connection, bandwidth: float) -> None:
    """Keep the greatest bandwidth of the last rounds."""
    while c.bandwidths and c.bandwidths[-1][1] <= bandwidth:
        c.bandwidths.pop()
    c.bandwidths.append((c.round, bandwidth))
    while c.bandwidths[0][0] < c.round - ROUNDS:
        c.bandwidths.pop(0)
    c.bandwidth = c.bandwidths[0][1]


def _bbr_round(c: Connection) -> None:
    """Leave the start-up when three rounds brought no more."""
    if c.phase != STARTUP:
        return
    if c.bandwidth >= c.full_bandwidth * FULL_GROWTH:
        c.full_bandwidth, c.full_rounds = c.bandwidth, 0
        return
    c.full_rounds += 1
    if c.full_rounds >= FULL_ROUNDS:
        c.phase = DRAIN
