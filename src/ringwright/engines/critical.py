"""The critical path: the chain of messages that ends last, and what each of them spent its time on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph


@dataclass(frozen=True)
class Path:
    """The critical path: its messages from first to last, and picoseconds of each kind, by class of link.

    ``waiting_ps`` is time that a message on the path stood before a busy resource, by the name of the first one, or moved as
    slowly as the slots of a stream let it; ``arriving_ps`` until a rank at one of its ends came, by the rank's name.
    """

    messages: tuple[int, ...]
    moving_ps: dict[str, int]
    waiting_ps: dict[str, int]
    software_ps: int
    arriving_ps: dict[str, int] = field(default_factory=dict)

    @property
    def total_ps(self) -> int:
        """Length of the path."""
        parts = (self.moving_ps, self.waiting_ps, self.arriving_ps)
        return sum(sum(each.values()) for each in parts) + self.software_ps

    def sentence(self) -> str:
        """Return the parts in words, largest first."""
        total = max(self.total_ps, 1)
        parts = [(size, f"on {name} links") for name, size in self.moving_ps.items()]
        parts += [(size, f"waiting for {name}") for name, size in self.waiting_ps.items()]
        parts += [(size, f"until {name} came") for name, size in self.arriving_ps.items()]
        parts.append((self.software_ps, "in software"))
        shown = [
            f"{100 * size / total:.0f} % {words}" for size, words in sorted(parts, reverse=True) if size * 200 > total
        ]
        if not shown:
            return "nothing moves"
        count = len(self.messages)
        return f"{f'{count} messages one after the other' if count > 1 else 'one message'}: {', '.join(shown[:5])}"


def critical(
    flat: MessageGraph,
    machine: Machine,
    start_ps: np.ndarray,
    end_ps: np.ndarray,
    base_ps: int = 0,
    come_ps: np.ndarray | None = None,
) -> Path:
    """Follow the last message back: each time to the one whose end it waited for, or to the rank whose arrival.

    ``base_ps`` is software before the first message, ``come_ps`` when each node of the machine came. The parts of the path add
    up to the end of the last message.
    """
    import numpy as np

    n = flat.n_messages
    if not n:
        return Path((), {}, {}, 0)
    owner = np.repeat(np.arange(len(flat.waits)), np.diff(flat.next_starts))
    order = np.argsort(flat.nexts, kind="stable")
    starts = np.searchsorted(flat.nexts[order], np.arange(len(flat.waits) + 1))
    before = owner[order]
    chain = [int(np.argmax(end_ps))]
    free = np.full(n, base_ps) if come_ps is None else flat.earliest_ps(come_ps) + base_ps
    forks = dict(zip(flat.branches.child.tolist(), flat.branches.parent.tolist(), strict=True)) if flat.branches else {}

    def stem(message: int) -> int:
        while message in forks:
            message = forks[message]
        return message

    while True:
        behind = _messages_behind(stem(chain[-1]), before, starts, n)
        if not behind or max(int(end_ps[message]) for message in behind) < free[stem(chain[-1])]:
            break
        chain.append(max(behind, key=lambda message: int(end_ps[message])))
    stems = [stem(message) for message in chain]
    came = int(free[stems[-1]]) - base_ps
    path = _account(flat, machine, start_ps[stems[::-1]], end_ps, chain[::-1], stems[::-1], (base_ps, came))
    return (
        replace(path, arriving_ps={_awaited(flat, machine, stems[-1], come_ps): came})
        if come_ps is not None and came
        else path
    )


def _awaited(flat: MessageGraph, machine: Machine, message: int, come_ps: np.ndarray) -> str:
    """Return the name of the last to come of the ends of a message, and of those that leave it on the way."""
    import numpy as np

    ends = np.concatenate((flat.src[[message]], flat.dst[flat.stems() == message]))
    return machine.topology.label(int(ends[come_ps[ends].argmax()]))


def _messages_behind(message: int, before: np.ndarray, starts: np.ndarray, n: int) -> list[int]:
    """Return the messages that one waits for, seen through joins."""
    messages: list[int] = []
    stack = [message]
    while stack:
        here = stack.pop()
        for other in before[starts[here] : starts[here + 1]].tolist():
            (messages if other < n else stack).append(other)
    return messages


def _account(
    flat: MessageGraph,
    machine: Machine,
    start_ps: np.ndarray,
    end_ps: np.ndarray,
    chain: list[int],
    stems: list[int],
    before_ps: tuple[int, int],
) -> Path:
    """Divide the time; a branch of a multicast begins where its stem does, at ``start_ps`` (per message of the chain).

    ``before_ps``: software before the first message, and how long that one waited for a rank to come.
    """
    moving: dict[str, int] = {}
    waiting: dict[str, int] = {}
    software, clock = before_ps[0], sum(before_ps)
    for message, stem, start in zip(chain, stems, start_ps.tolist(), strict=True):
        end, delay = int(end_ps[message]), int(flat.delay[stem])
        hops = _hops(flat, stem)
        sending = sum(int(machine.latency[hop]) for hop in hops if machine.sends[hop])
        software += delay + sending
        stood = max(0, start - clock - delay)
        if stood and hops:
            name = machine.label(hops[0])
            waiting[name] = waiting.get(name, 0) + stood
        every = hops if stem == message else hops + _hops(flat, message)
        slowest, pacer = _slowest(machine, every), _pacer(machine, every)
        began = max(start, clock)  # the next message of a sender may leave while the one before is still on its way
        account, name = (waiting, pacer) if pacer else (moving, slowest)
        account[name] = account.get(name, 0) + end - began - sending
        clock = end
    return Path(tuple(chain), moving, waiting, software)


def _hops(flat: MessageGraph, message: int) -> list[int]:
    hops: list[int] = flat.hops[flat.hop_starts[message] : flat.hop_starts[message + 1]].tolist()
    return hops


def _pacer(machine: Machine, hops: list[int]) -> str:
    """Return what holds a message back more than any link of its route: the slots of a stream, or nothing."""
    worst = max(hops, key=lambda hop: float(machine.ps_per_byte[hop]), default=0)
    return machine.label(worst) if hops and worst >= machine.n - len(machine.names) else ""


def _slowest(machine: Machine, hops: list[int]) -> str:
    """Return the class of the slowest link of a route."""
    links = [hop for hop in hops if hop < machine.topology.n_links]
    if not links:
        return "no"
    worst = max(links, key=lambda link: float(machine.ps_per_byte[link]))
    return machine.topology.classes[int(machine.topology.link_class[worst])]
