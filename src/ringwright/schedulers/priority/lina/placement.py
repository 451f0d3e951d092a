"""Devices of each expert in one layer of inference, and how the tokens divide over an expert's copies."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

MOST_EXPERTS = 4  # on one device
NOTHING = 1e-9  # of a device
ROUNDS = 100  # of pouring; a few suffice


@dataclass(frozen=True)
class ExpertPlacement:
    """Per device the experts on it and the share of the device that each was given; shares of a device sum to 1."""

    devices: tuple[dict[int, float], ...]

    def given(self, experts: int) -> list[float]:
        """Return how many devices each expert has; they sum to the number of devices."""
        return [sum(device.get(expert, 0.0) for device in self.devices) for expert in range(experts)]

    def copies(self, expert: int) -> list[int]:
        """Return the devices that hold an expert."""
        return [at for at, device in enumerate(self.devices) if expert in device]


def place(shares: Sequence[float] | np.ndarray, devices: int, *, seed: int = 0) -> ExpertPlacement:
    """Return the placement for these expected shares of the tokens; an expert of share 0 is one nothing is known of.

    Each expert wants ``devices`` x its share. Those that want less than one device are packed first-fit-decreasing; the others
    take the devices left, and then what is left on devices. Experts that nothing is known of are spread over free devices, or
    placed at random. UsageError where four experts a device are too few.
    """
    experts = len(shares)
    if experts > MOST_EXPERTS * devices:
        raise UsageError(
            f"{experts} experts do not fit on {devices} devices, {MOST_EXPERTS} on each", remedy="more devices"
        )
    known = [float(share) for share in shares]
    wanted = [devices * share / max(sum(known), 1.0) for share in known]
    made: list[dict[int, float]] = [{} for _ in range(devices)]
    rest = _packed(wanted, made)
    spare = MOST_EXPERTS * devices - experts  # places for further copies
    for expert, want in sorted(rest.items(), key=lambda each: (-each[1], each[0])):
        spare -= _spread(expert, want, made, 1 + spare) - 1
    _unknown([expert for expert in range(experts) if known[expert] <= 0], made, random.Random(seed))  # noqa: S311
    _fill(made, wanted)
    return ExpertPlacement(tuple({e: part / sum(device.values()) for e, part in device.items()} for device in made))


def _packed(wanted: list[float], devices: list[dict[int, float]]) -> dict[int, float]:
    """Put experts that want less than a device first-fit-decreasing; return what the others want, and what fits nowhere."""
    rest = {expert: want for expert, want in enumerate(wanted) if want >= 1}
    for expert in sorted(range(len(wanted)), key=lambda each: (-wanted[each], each)):
        if not NOTHING < wanted[expert] < 1:
            continue
        fits = (device for device in devices if _hole(device) + NOTHING >= wanted[expert])
        device = next(fits, None)
        if device is None:
            rest[expert] = wanted[expert]
        else:
            device[expert] = wanted[expert]
    return rest


def _hole(device: dict[int, float]) -> float:
    """Return the share of a device that is left, 0 where it has its experts."""
    return max(0.0, 1.0 - sum(device.values())) if len(device) < MOST_EXPERTS else 0.0


def _spread(expert: int, want: float, devices: list[dict[int, float]], most: int) -> int:
    """Give an expert up to ``most`` copies where most is left until it has what it wants; return how many it got."""
    made = 0
    for device in sorted(devices, key=_hole, reverse=True):
        part = min(want, _hole(device))
        if part > NOTHING and made < most:
            device[expert] = part
            want -= part
            made += 1
    if not made:
        room = [device for device in devices if len(device) < MOST_EXPERTS]
        min(room, key=lambda device: sum(device.values()))[expert] = want
    return max(made, 1)


def _unknown(experts: list[int], devices: list[dict[int, float]], draw: random.Random) -> None:
    for expert in experts:
        empty = [device for device in devices if not device]
        room = [device for device in devices if len(device) < MOST_EXPERTS]
        device = empty[0] if empty else draw.choice(room)
        device[expert] = NOTHING  # a place, no claim


def _fill(devices: list[dict[int, float]], wanted: list[float]) -> None:
    """Give devices that stayed empty to the expert with the most wanted per copy, one after another."""
    for device in devices:
        if not device:
            held = {e: sum(e in other for other in devices) for e in range(len(wanted))}
            most = max(range(len(wanted)), key=lambda e: (wanted[e] / max(held[e], 1), -e))
            device[most] = 1.0


def quotas(placement: ExpertPlacement, tokens: Sequence[int]) -> list[dict[int, int]]:
    """Return per expert the tokens that each device with a copy of it takes: whole numbers that sum to the expert's.

    Each expert in turn is poured in where least has been given, again until nothing moves: the sum of the squares of all loads
    falls each time, so the loads become as even as the copies allow.
    """
    load = [0] * len(placement.devices)
    quota: list[dict[int, int]] = [{} for _ in tokens]
    held = [placement.copies(expert) for expert in range(len(tokens))]
    lost = [expert for expert, copies in enumerate(held) if not copies]
    if lost:
        raise UsageError(f"expert {lost[0]} is on no device", remedy="place all experts")
    for _ in range(ROUNDS):
        before = load.copy()
        for expert in sorted(range(len(tokens)), key=lambda each: (len(held[each]), each)):
            for device, part in quota[expert].items():
                load[device] -= part
            quota[expert] = _poured(tokens[expert], {at: load[at] for at in held[expert]})
            for device, part in quota[expert].items():
                load[device] += part
        if load == before:
            break
    return quota


def _poured(amount: int, levels: dict[int, int]) -> dict[int, int]:
    """Return how ``amount`` divides so that the highest of these levels is as low as it can be."""
    order = sorted(levels, key=lambda at: (levels[at], at))
    count, total = 0, 0
    for at in order:
        if count and levels[at] * count - total >= amount:
            break
        count, total = count + 1, total + levels[at]
    level, rest = divmod(amount + total, count)
    return {at: level + (index < rest) - levels[at] for index, at in enumerate(order[:count])}


def layer_tokens(placement: ExpertPlacement, tokens: Sequence[int]) -> int:
    """Return the most tokens on one device: what the time of the layer is in proportion to."""
    load = [0] * len(placement.devices)
    for divided in quotas(placement, tokens):
        for device, part in divided.items():
            load[device] += part
    return max(load)
