"""FPISA's figures: floats a second through a pool, beside SwitchML's integers, and how many numbers a register holds."""

from __future__ import annotations

from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm

HEADERS = 78  # bytes beside a packet's elements, as in SwitchML's figures
RATE = 12.5e9
REGISTER_BITS, SIGNIFICAND_BITS = 32, 24  # of a mantissa's register, and of a float32 with its hidden one


def elements_per_s(switches: str, spelling: str, elements: int, size_bytes: int, workers: int = 8) -> float:
    """Return the elements/s that every worker of a rack at 100 Gb/s has summed, headers on the wire."""
    spec = f"leaf-spine:{workers},layout=switch,rate={RATE:.0f},latency_s=1us,switches={switches}"
    machine = fabric(f"{spec},packet_bytes={max(64, 4 * elements)},header_bytes={_headers(elements)}")
    _, make, knobs = algorithm(f"{spelling}:payload={elements}")
    collective = Collective("all-reduce", range(workers), size_bytes)
    return size_bytes / 4 / simulate(make(collective, machine, **knobs), machine, engine="flows").time_s


def _headers(elements: int) -> int:
    """Return headers of a packet of 64 B of data or more that make its share of data that of a packet of so many elements."""
    data = 4 * elements
    return round(HEADERS * max(64, data) / data)


def single_over_packed(size_bytes: int) -> float:
    """Return the elements/s of SwitchML with 64 a packet over those of one float a packet, both at the line's rate."""
    slow = elements_per_s("tofino-fpisa", "fpisa:slots=8192", 1, size_bytes)
    return elements_per_s("tofino", "switchml:slots=8192", 64, size_bytes) / slow


def additions_without_overflow() -> int:
    """Return how many numbers of equal exponent a mantissa's register adds for sure: one bit of it is the sign."""
    return int(2 ** (REGISTER_BITS - SIGNIFICAND_BITS - 1))
