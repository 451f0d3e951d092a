"""Reading lines of faults: from words to effects on links and ranks (the language is told in ``faults``)."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from typing import ClassVar

from ringwright.fabrics._congestion import WORD
from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_size, parse_time
from ringwright.model.topology import NIC, RANK, SWITCH, Topology

EFFECTS = (
    "ringwright list faults; dead, rate P%, loss P%, ber E, latency T, buffer SIZE, optics degrade, slow Fx or flap T every T;"
    " in the lab also jitter, reorder, ecn, kill, stop"
)
OF_ALL = ("rate", "loss", "latency", "ber")  # a line that begins so is about every link
KINDS_OF = {"nic": (NIC,), "port": (NIC, RANK), "switch": (SWITCH,), "rank": (RANK,)}
DEGRADES_S = 1.0  # from the first bit errors to half of the lanes, where no time is given
# Share of that time, field, value, each until the next: bit errors before correction, then lanes of four that are shut, with the
# errors that they had. Links that lose lanes go on with the others: Cornelis CN5000, Dynamic Lane Scaling.
OPTICS = (
    (0.0, "ber", 1e-4),
    (0.2, "ber", 5e-4),
    (0.4, "ber", 1e-3),
    (0.6, "rate_factor", 0.75),
    (0.8, "rate_factor", 0.5),
)
OF_RANKS = ("compute_factor", "killed", "stopped")
MOST_LATENCY_S, MOST_RATE, MOST_SLOW = 1000, 100, 1_000_000
MOST_ROWS = 5_000_000
MOST_BER = 0.01  # beyond it nothing arrives
LEAST_BUFFER = 256  # bytes: a header and a little
REPEATS = 3  # outages of a flapping link that are laid out at least: from these on it is known to go on
MOST_NEAR = 20_000  # names among which near ones are sought
LAB = "ringwright lab FABRIC --fault '...' -- COMMAND"
HELP = (
    "ringwright list faults; link node3/nic2 flap 100ms every 2s; link a>b rate 50% from 1ms to 3ms; nic N dead at 5ms;"
    " rank 7 slow 2x"
)


@dataclass(frozen=True)
class FaultEffect:
    """One field of some targets has another value during [start_s, end_s)."""

    kind: str  # link, rank
    targets: tuple[int, ...]
    field: str
    value: float
    start_s: float = 0.0
    end_s: float = math.inf
    everywhere: bool = False  # a pattern that names all links
    text: str = ""  # the line


def effects(topology: Topology, lines: Iterable[str], *, horizon_s: float = 1.0, seed: int = 0) -> list[FaultEffect]:
    """Return what the lines say, one effect per line, or per outage of a flapping link (for ``horizon_s`` from its first on)."""
    all_effects: list[FaultEffect] = []
    for number, line in enumerate(lines):
        text = line.partition("#")[0].strip()
        if text:
            text = f"link * {text}" if text.split()[0] in OF_ALL else text
            draw = random.Random(f"{seed} {number} {text}")  # noqa: S311 (a lottery, not a secret)
            all_effects += _Line(topology, text, draw).effects(horizon_s)
    return all_effects


class _Line:
    """A line being read, word by word."""

    def __init__(self, topology: Topology, text: str, draw: random.Random) -> None:
        self.topology, self.text, self.draw = topology, text, draw
        self.words = text.split()

    def wrong(self, what: str, remedy: str = HELP) -> UsageError:
        return UsageError(what, where=f"fault '{self.text}'", remedy=remedy)

    def word(self, what: str) -> str:
        if not self.words:
            raise self.wrong(f"{what} is missing")
        return self.words.pop(0)

    def effects(self, horizon_s: float) -> list[FaultEffect]:
        kind = self.word("a target")
        if kind == "flow":
            raise self.wrong("a competing flow is outside the simulation's model", LAB)
        if kind == WORD:
            raise self.wrong(
                "traffic of another job changes no link", f"simulate ... --fault '{self.text}', or the lab"
            )
        if kind == "ecmp":
            raise self.wrong(
                "in the lab two ranks have one path, so nothing is hashed", "simulate, on a fabric with spines"
            )
        if kind not in ("link", *KINDS_OF):
            raise self.wrong(f"'{kind}' is no target", f"link, {', '.join(KINDS_OF)}")
        name, how = self.word("a name"), self.word("an effect")
        if how == "flap":
            return self._flapping(kind, name, horizon_s)
        if how == "optics":
            return self._optics(kind, name)
        field, value = self._effect(kind, how)
        start_s, end_s = self._times()
        self._no_more()
        return [self._on(kind, name, field, value, start_s, end_s)]

    def _effect(self, kind: str, how: str) -> tuple[str, float]:
        if how == "dead":
            return "rate_factor", 0.0
        if how == "slow":
            if kind != "rank":
                raise self.wrong("only a rank is slow", "link NAME rate 50%")
            return "compute_factor", 1.0 / self._slowness()
        if how in ("rate", "loss", "reorder", "ecn"):
            share = self._number("%") / 100.0
            if share < 0 or (how != "rate" and share > 1):
                raise self.wrong(f"{how} of {share:.0%} is not possible", "0% to 100%")
            if share > MOST_RATE:
                raise self.wrong(f"a rate is at most {MOST_RATE:.0%} of what it was", "link NAME rate 50%")
            return ("rate_factor" if how == "rate" else how), share
        if how in ("kill", "stop"):
            if kind != "rank":
                raise self.wrong(f"only a rank is to {how}", f"rank 7 {how} at 2s")
            return {"kill": "killed", "stop": "stopped"}[how], 1.0
        if how in self._numbers:
            field, read = self._numbers[how]
            return field, read(self)
        if how == "latency":
            text = self.word("a time")
            return ("added_latency_s" if text[0] == "+" else "latency_s"), self._latency(text.lstrip("+"))
        raise self.wrong(f"'{how}' is no effect", EFFECTS)

    def _jitter(self) -> float:
        return self._latency(self.word("a time"))

    def _errors(self) -> float:
        ber = self._number("")
        if not 0 <= ber <= MOST_BER:
            raise self.wrong(f"a bit error rate of {ber:g} is not possible", f"0 to {MOST_BER:g}: link NAME ber 1e-4")
        return ber

    def _buffer(self) -> float:
        text = self.word("a size")
        try:
            size_bytes = parse_size(text)
        except UsageError as error:
            raise self.wrong(error.what, error.remedy) from error
        if size_bytes < LEAST_BUFFER:
            raise self.wrong(
                f"a buffer of {size_bytes} B holds no packet", f"{LEAST_BUFFER} B or more: switch leaf0 buffer 4MiB"
            )
        return float(size_bytes)

    _numbers: ClassVar[dict[str, tuple[str, Callable[[_Line], float]]]] = {
        "jitter": ("jitter_s", _jitter),
        "ber": ("ber", _errors),
        "buffer": ("buffer_bytes", _buffer),
    }

    def _optics(self, kind: str, name: str) -> list[FaultEffect]:
        """Return the steps of a failing optic: bit errors that rise, then lanes that are shut; the last step stays."""
        if self.word("'degrade'") != "degrade":
            raise self.wrong("'degrade' is missing", "nic node0/nic0 optics degrade from 1ms for 5ms")
        start_s, end_s = self._times()
        self._no_more()
        whole_s = DEGRADES_S if math.isinf(end_s) else end_s - start_s
        ends = [*(share for share, _, _ in OPTICS[1:]), math.inf]
        steps = []
        for (share, field, value), after in zip(OPTICS, ends, strict=True):
            steps.append(self._on(kind, name, field, value, start_s + share * whole_s, start_s + after * whole_s))
        return [dataclasses.replace(each, everywhere=False) for each in steps]

    def _slowness(self) -> float:
        factor = self._number("x")
        if factor <= 0:
            raise self.wrong("a rank cannot be slower than for ever", "rank 7 slow 2x")
        if not 1 / MOST_SLOW <= factor <= MOST_SLOW:
            raise self.wrong(
                f"a rank is slower by 1/{MOST_SLOW} to {MOST_SLOW} times, not {factor:g}", "rank 7 slow 2x"
            )
        return factor

    def _latency(self, text: str) -> float:
        latency_s = self._time(text)
        if latency_s > MOST_LATENCY_S:
            raise self.wrong(f"a latency is at most {MOST_LATENCY_S} s", "link NAME latency 20us")
        return latency_s

    def _flapping(self, kind: str, name: str, horizon_s: float) -> list[FaultEffect]:
        down_s = self._time(self.word("how long"))
        if self.word("'every'") != "every":
            raise self.wrong("'every' is missing", "link node3/nic2 flap 100ms every 2s")
        every_s = self._time(self.word("how often"))
        timed = bool(self.words)
        start_s, end_s = self._times()
        self._no_more()
        if not 0 < down_s < every_s:
            raise self.wrong("the outage has to be shorter than its period")
        if not timed:
            start_s = self.draw.uniform(0.0, every_s - down_s)
        count = math.ceil(min(end_s - start_s, max(horizon_s, (REPEATS - 0.5) * every_s)) / every_s)
        one = self._on(kind, name, "rate_factor", 0.0, 0.0, math.inf)
        if max(0, count) * len(one.targets) * 2 > MOST_ROWS:
            raise self.wrong(
                f"{count * len(one.targets):,} outages are too many", "a shorter horizon or a longer period"
            )
        begins = [start_s + turn * every_s for turn in range(count)]
        return [
            dataclasses.replace(one, start_s=begin, end_s=min(begin + down_s, end_s), everywhere=False)
            for begin in begins
        ]

    def _on(self, kind: str, name: str, field: str, value: float, start_s: float, end_s: float) -> FaultEffect:
        if kind == "rank" and field in OF_RANKS:
            return FaultEffect("rank", tuple(self._nodes("rank", name)), field, value, start_s, end_s, text=self.text)
        nodes = [] if kind == "link" else self._nodes(kind, name)
        links = self._links(name) if kind == "link" else self._links_at(nodes)
        if field == "buffer_bytes":
            links = self._queues(links, nodes)
        everywhere = len(links) == self.topology.n_links and any(mark in name for mark in "*?[")
        return FaultEffect("link", tuple(links), field, value, start_s, end_s, everywhere, self.text)

    def _queues(self, links: list[int], nodes: list[int]) -> list[int]:
        """Return the links that leave these nodes, or all of those named: a queue stands in front of the link behind it."""
        return [link for link in links if not nodes or int(self.topology.src[link]) in nodes]

    def _times(self) -> tuple[float, float]:
        start_s, end_s = 0.0, math.inf
        if self.words and self.words[0] in ("at", "from"):
            self.words.pop(0)
            start_s = self._time(self.word("a time"))
        if self.words and self.words[0] in ("to", "until", "for"):
            word = self.words.pop(0)
            end_s = self._time(self.word("a time")) + (start_s if word == "for" else 0.0)
        if end_s <= start_s:
            raise self.wrong("it ends before it begins")
        return start_s, end_s

    def _no_more(self) -> None:
        if self.words:
            raise self.wrong(f"'{' '.join(self.words)}' is not understood")

    def _time(self, text: str) -> float:
        try:
            return parse_time(text)
        except UsageError as error:
            raise self.wrong(error.what, error.remedy) from error

    def _number(self, unit: str) -> float:
        text = self.word(f"a number with {unit}")
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = math.nan
        if not text.endswith(unit) or not math.isfinite(value):
            raise self.wrong(f"'{text}' is no number with {unit}")
        return value

    def _links(self, name: str) -> list[int]:
        top = self.topology
        for mark in ("--", ">"):
            if mark in name:
                here, _, there = name.partition(mark)
                return self._between(self._named(here), self._named(there), both=mark == "--")
        if name == "*":
            return list(range(top.n_links))
        if name.startswith("random:"):
            return self._some_cables(self._how_many(name))
        return self._links_at(self._named(name))

    def _links_at(self, nodes: list[int]) -> list[int]:
        import numpy as np

        at = np.zeros(self.topology.n_nodes, bool)
        at[nodes] = True
        links: list[int] = np.flatnonzero(at[self.topology.src] | at[self.topology.dst]).tolist()
        return links

    def _between(self, here: list[int], there: list[int], *, both: bool) -> list[int]:
        import numpy as np

        top = self.topology
        starts, ends = np.zeros(top.n_nodes, bool), np.zeros(top.n_nodes, bool)
        starts[here], ends[there] = True, True
        on = starts[top.src] & ends[top.dst]
        if both:
            on |= ends[top.src] & starts[top.dst]
        if not on.any():
            neighbours = top.dst[starts[top.src]][:6]
            some = ", ".join(top.label(int(node)) for node in neighbours)
            raise self.wrong(
                f"no link goes from {top.label(here[0])} to {top.label(there[0])}", f"it has links to: {some}"
            )
        links: list[int] = np.flatnonzero(on).tolist()
        return links

    def _some_cables(self, count: int) -> list[int]:
        top = self.topology
        cables: dict[tuple[int, int], list[int]] = {}
        for link, (here, there) in enumerate(zip(top.src.tolist(), top.dst.tolist(), strict=True)):
            cables.setdefault((min(here, there), max(here, there)), []).append(link)
        if count > len(cables):
            raise self.wrong(f"there are only {len(cables)} cables")
        chosen = self.draw.sample(sorted(cables), count)
        return sorted(link for cable in chosen for link in cables[cable])

    def _how_many(self, name: str) -> int:
        text = name.removeprefix("random:")
        if not text.isdecimal() or len(text) > 9 or not int(text):
            raise self.wrong(f"'{name}' is not random:K")
        return int(text)

    def _nodes(self, kind: str, name: str) -> list[int]:
        import numpy as np

        top, wanted = self.topology, np.array(KINDS_OF[kind])
        if name.startswith("random:"):
            choices: list[int] = np.flatnonzero(np.isin(top.kinds, wanted)).tolist()
            if self._how_many(name) > len(choices):
                raise self.wrong(f"there are only {len(choices)} of kind {kind}")
            return sorted(self.draw.sample(choices, self._how_many(name)))
        if kind == "rank" and name.isdecimal() and len(name) < 10:
            if int(name) >= top.n_ranks:
                raise self.wrong(f"{top.name} has no rank {name}", f"0 to {top.n_ranks - 1}")
            return [int(name)]
        nodes = [node for node in self._named(name) if top.kinds[node] in wanted]
        if not nodes:
            raise self.wrong(f"'{name}' is no {kind}", f"link {name} ... takes any node")
        return nodes

    def _named(self, name: str) -> list[int]:
        top = self.topology
        if any(mark in name for mark in "*?["):
            is_match = re.compile(translate(name)).match
            nodes = [node for node in range(top.n_nodes) if is_match(top.label(node))]
            if nodes:
                return nodes
        else:
            try:
                return [top.find(name)]
            except UsageError:
                pass
        some = [top.label(node) for node in range(min(top.n_nodes, MOST_NEAR))]
        near = get_close_matches(name, some, 3) or some[:3] + some[-1:]
        raise self.wrong(f"{top.name} has no '{name}'", f"names near it: {', '.join(near)}")
