"""What a network costs: prices of NICs, ports of switches and optics, each or for a Gb/s, typed or from a file.

``nic=2`` is the price of a Gb/s of a NIC, ``nic@400=1200`` that of one NIC of 400 Gb/s. A cable has an optic at each end. Prices
are in one currency, whichever that is. What is not priced costs nothing, which the answer says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.advise.provision.network import ALIKE, GBIT
from ringwright.ground.errors import InputError, UsageError

if TYPE_CHECKING:
    from ringwright.advise.provision.network import Cabling

PARTS = ("nic", "port", "optic")
EXAMPLE = "--prices nic@400=1200 --prices port=1.5 --prices optic=1"
MOST_BYTES = 1 << 16  # of a file of prices


@dataclass(frozen=True)
class Prices:
    """Prices by (part, Gb/s of one piece); None for Gb/s: of each Gb/s of such a part."""

    each: tuple[tuple[tuple[str, float | None], float], ...]

    def cost(self, cabling: Cabling, nic_rate: float) -> float | None:
        """Return the cost of a network whose parts all have ``nic_rate`` (bytes/s); None where a part has no price then."""
        counts = {"nic": cabling.nics, "port": cabling.switch_ports, "optic": 2 * cabling.cables}
        total = 0.0
        for part, count in counts.items():
            if part not in self.parts or not count:
                continue
            price = self._of(part, nic_rate / GBIT)
            if price is None:
                return None
            total += count * price
        return total

    def _of(self, part: str, gbits: float) -> float | None:
        prices = dict(self.each)
        for (name, rate), price in self.each:
            if name == part and rate is not None and abs(rate - gbits) <= ALIKE * gbits:
                return price
        by_gbit = prices.get((part, None))
        return None if by_gbit is None else by_gbit * gbits

    @property
    def parts(self) -> frozenset[str]:
        """The parts that have a price."""
        return frozenset(part for (part, _), _ in self.each)

    @property
    def free(self) -> list[str]:
        """The parts that have none."""
        return [part for part in PARTS if part not in self.parts]


def read_prices(given: Iterable[str]) -> Prices | None:
    """Return prices from ``KEY=VALUE`` words and TOML files of such lines; None where none is given.

    Raises UsageError for a part that is not known, a price that is none, or one that is given twice; InputError for a file that
    cannot be read.
    """
    known: dict[tuple[str, float | None], float] = {}
    for word in given:
        for key, value in _words(word):
            named = _part(key)
            if named in known:
                raise UsageError(f"'{key}' has two prices", where="--prices", remedy=EXAMPLE)
            known[named] = _price(key, value)
    if given and not known:
        raise UsageError("no price is named", where="--prices", remedy=EXAMPLE)
    return Prices(tuple(known.items())) if known else None


def _words(word: str) -> list[tuple[str, object]]:
    path = Path(word)
    if path.is_file():
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES:,} bytes")
            return list(tomllib.loads(path.read_text()).items())
        except (OSError, ValueError) as error:
            raise InputError(
                f"is no file of prices: {error}", where=word, remedy='lines such as "nic@400" = 1200'
            ) from error
    if "=" not in word:
        raise UsageError(f"'{word}' is neither a file nor KEY=VALUE", where="--prices", remedy=EXAMPLE)
    pairs = (each.partition("=") for each in word.split(","))
    return [(key.strip(), value) for key, _, value in pairs]


def _part(key: str) -> tuple[str, float | None]:
    part, at, text = key.partition("@")
    if part not in PARTS:
        raise UsageError(
            f"'{key}' is no part of a network", where="--prices", remedy=f"one of: {', '.join(PARTS)}; {EXAMPLE}"
        )
    rate = _number(text) if at else None
    if at and not rate:
        raise UsageError(f"'{text}' in '{key}' is no rate in Gb/s", where="--prices", remedy=EXAMPLE)
    return part, rate


def _price(key: str, value: object) -> float:
    price = _number(value)
    if price is None:
        raise UsageError(f"'{value}' is no price of '{key}'", where="--prices", remedy=EXAMPLE)
    return price


def _number(value: object) -> float | None:
    """Return a finite number not below 0, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
