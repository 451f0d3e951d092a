"""The lines: iterations, and timers in the four forms in which they are printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ringwright.formats.sources.iteration_line import NUMBER, RatedStep, iteration_line, rated_step

_NAME = r"[A-Za-z][\w/.-]{0,80}"
_TFLOPS = re.compile(rf"throughput per GPU \(TFLOP/s/GPU\): (?P<v>{NUMBER})|\[LM\]-?TFLOPs=(?P<w>{NUMBER})")
_HEADER = re.compile(
    r"^(?P<before>.*?)(?P<how>\(min, max\) time across ranks|max time across ranks|times across ranks|time) \(ms\):\s*$"
)
_DOTTED = re.compile(
    rf"^\s+(?P<name>{_NAME}) \.+: (?:\((?P<least>{NUMBER}), (?P<most>{NUMBER})\)|(?P<one>{NUMBER}))\s*$"
)
_NAMED = re.compile(rf"^\s+(?P<name>{_NAME}):\s*$")
_OF_RANK = re.compile(rf"^\s+rank +(?P<rank>\d{{1,7}}): (?P<one>{NUMBER})\s*$")
_INLINE = re.compile(rf"\btime \(ms\)(?P<timers>(?: \| {_NAME}: {NUMBER})+)")
_TIMER = re.compile(rf" \| ({_NAME}): ({NUMBER})")
_PRINTS = re.compile(r"\[Rank (\d{1,7})\]")
_STEP = re.compile(r"\[Rank \d{1,7}\] step=(\d{1,15}),")
FASTEST, SLOWEST = "fastest rank", "slowest rank"


@dataclass(frozen=True, slots=True)
class PrintedIteration:
    """The mean time of the iterations since the line before; None where nothing tells it.

    ``since`` is how many these are where the line before of the same rank tells it; a time is inferred that no line prints.
    """

    number: int
    seconds: float | None
    line: int
    tflops: float | None = None
    rank: int | None = None
    since: int | None = None
    is_inferred: bool = False


@dataclass(frozen=True, slots=True)
class PrintedTimer:
    """One time of one timer: of a rank, of whichever was fastest or slowest (``of``), or of the rank that prints."""

    name: str
    seconds: float
    line: int
    iteration: int | None
    rank: int | None = None
    of: str = ""


@dataclass
class TrainingLines:
    """Takes the lines of one log in turn."""

    iterations: list[PrintedIteration] = field(default_factory=list)
    timers: list[PrintedTimer] = field(default_factory=list)
    rated: dict[int | None, list[RatedStep]] = field(default_factory=dict)  # of each rank that prints them
    _how: str = ""
    _before: str = ""
    _name: str = ""
    _step: int | None = None

    def take(self, text: str, number: int) -> bool:
        """Take a line; say whether it was one of these."""
        if self._how and self._inside(text.removeprefix(self._before), number):
            return True
        header = _HEADER.match(text)
        if header is not None:
            self._how, self._before, self._name = header["how"], header["before"], ""
            return True
        self._how = ""
        return self._iteration(text, number) or self._inline(text, number)

    @property
    def last(self) -> int | None:
        """The iteration whose line came last; None before the first."""
        return self.iterations[-1].number if self.iterations else None

    def _iteration(self, text: str, number: int) -> bool:
        said = iteration_line(text)
        if said is None and (rated := rated_step(text)) is not None:
            self._rated(rated, number)
            return True
        if said is None:
            step = _STEP.search(text)
            self._step = int(step[1]) if step else self._step
            return False
        flops = _TFLOPS.search(text)
        told = float(flops["v"] or flops["w"]) if flops else None
        self.iterations.append(PrintedIteration(said.number, said.seconds, number, told))
        return True

    def _rated(self, step: RatedStep, line: int) -> None:
        """Take a step whose time follows from when its line and the one before it of its rank were printed."""
        told = self.rated.setdefault(step.rank, [])
        before = told[-1] if told else None
        told.append(step)
        since = step.number - before.number if before is not None and step.number > before.number else None
        seconds = None
        if before is not None and since and step.stamp_s is not None and before.stamp_s is not None:
            seconds = (step.stamp_s - before.stamp_s) / since if step.stamp_s > before.stamp_s else None
        self.iterations.append(
            PrintedIteration(step.number, seconds, line, step.tflops, step.rank, since, is_inferred=seconds is not None)
        )

    def _inline(self, text: str, number: int) -> bool:
        match = _INLINE.search(text)
        if match is None:
            return False
        rank = _PRINTS.search(text[: match.start()])
        of_rank = int(rank[1]) if rank else None
        # DeepSpeed prints its timers before the line of the iteration
        iteration = self._step if rank else self.last
        for name, value in _TIMER.findall(match["timers"]):
            self.timers.append(PrintedTimer(name, float(value) / 1e3, number, iteration, of_rank))
        return True

    def _inside(self, text: str, number: int) -> bool:
        """Take a line below a header."""
        dotted = _DOTTED.match(text)
        if dotted is not None and dotted["one"] is None:
            for side, of in (("least", FASTEST), ("most", SLOWEST)):
                self.timers.append(PrintedTimer(dotted["name"], float(dotted[side]) / 1e3, number, self.last, None, of))
            return True
        if dotted is not None:
            of = SLOWEST if self._how.startswith("max") else ""
            self.timers.append(PrintedTimer(dotted["name"], float(dotted["one"]) / 1e3, number, self.last, None, of))
            return True
        named, of_rank = _NAMED.match(text), _OF_RANK.match(text)
        if of_rank is not None and self._name:
            self.timers.append(
                PrintedTimer(self._name, float(of_rank["one"]) / 1e3, number, self.last, int(of_rank["rank"]))
            )
            return True
        self._name = named["name"] if named is not None and self._how.startswith("times") else self._name
        return named is not None and self._how.startswith("times")
