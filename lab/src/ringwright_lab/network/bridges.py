"""Which node switches frames with the kernel's bridge and which with our program, and the hold on that program."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ringwright.ground.errors import InfeasibleError
from ringwright_lab.network.namespaces import PROGRAMS, Inside
from ringwright_lab.network.spec import LabSpec, Port

ANSWER_S = 5.0


@dataclass(frozen=True)
class SwitchNamespace:
    """A namespace that switches: a switch of the fabric, or a wire spliced into a cable between two ranks."""

    name: str
    ports: tuple[Port, ...]
    links: dict[str, tuple[str, str]] = field(default_factory=dict)  # link name: interface, in or out


@dataclass(frozen=True)
class SwitchLayout:
    """``switches`` in user space by the switch's node, ``wires`` by the cable's lower link."""

    switches: dict[int, SwitchNamespace]
    wires: dict[int, SwitchNamespace]


def layout(spec: LabSpec, impaired: Iterable[int], *, adds: bool = False) -> SwitchLayout:
    """Return where frames of impaired links are handled.

    A link is handled where it ends if that is a switch, else where it begins; between ranks, and everywhere if the switches are
    to add and so stay bridges with addresses, a wire of two ports is spliced in.
    """
    links: dict[int, dict[str, tuple[str, str]]] = {}
    wires: dict[int, SwitchNamespace] = {}
    for link in sorted(impaired):
        out, back = spec.ports[link], spec.ports[spec.reverse[link]]
        name = spec.link_name(link)
        if out.peer >= spec.n and not adds:
            links.setdefault(out.peer, {})[name] = (back.name, "in")
        elif out.node >= spec.n and not adds:
            links.setdefault(out.node, {})[name] = (out.name, "out")
        else:
            wire = wires.setdefault(min(link, back.link), _wire(spec, min(link, back.link)))
            wire.links[name] = ("p0" if link < back.link else "p1", "in")
    switches = {
        node: SwitchNamespace(spec.topology.label(node), tuple(spec.ports_of(node)), ports)
        for node, ports in links.items()
    }
    return SwitchLayout(switches, wires)


def _wire(spec: LabSpec, link: int) -> SwitchNamespace:
    ends = (spec.ports[link], spec.ports[spec.reverse[link]])
    # A wire's ports carry what the ranks' ends have already shaped.
    ports = tuple(
        Port(-1, end.node, f"p{at}", -1, end.rate, f"02:53:{link >> 8:02x}:{link & 255:02x}:00:{at:02x}")
        for at, end in enumerate(ends)
    )
    return SwitchNamespace(f"wire{link}", ports)


def table(spec: LabSpec, switch: SwitchNamespace, node: int | None) -> dict[str, str]:
    """Return the interface behind which each rank's hardware address lies; a wire needs none, it has but one way on."""
    if node is None:
        return {}
    behind = {}
    for port in switch.ports:
        for rank in _reached(spec, node, port.peer):
            behind[spec.ports_of(rank)[0].mac] = port.name
    return behind


def _reached(spec: LabSpec, node: int, first: int) -> list[int]:
    seen, front = {node, first}, [first]
    while front:
        front = [port.peer for here in front for port in spec.ports_of(here) if port.peer not in seen]
        seen.update(front)
    return [rank for rank in seen if rank < spec.n]


class UserSwitch:
    """The running program of a switch."""

    def __init__(self, inside: Inside, switch: SwitchNamespace, addresses: dict[str, str], seed: int) -> None:
        self.name, self.links = switch.name, tuple(switch.links)
        plan = {
            "ports": [port.name for port in switch.ports],
            "table": addresses,
            "links": {name: [port, direction, f"{seed} {name}"] for name, (port, direction) in switch.links.items()},
        }
        command = [*inside.command, sys.executable, "-I", "-S", str(PROGRAMS / "switch.py"), json.dumps(plan)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._lock = threading.Lock()
        self._text = b""
        self._answer()

    @property
    def is_alive(self) -> bool:
        """Whether the program still runs."""
        return self._process.poll() is None

    def order(self, **values: object) -> dict[str, Any]:
        """Have a link changed, or nothing; return the counters of that moment. Raises InfeasibleError where it is gone."""
        with self._lock:
            if self._process.stdin is None:
                raise self._gone()
            try:
                os.write(self._process.stdin.fileno(), json.dumps(values).encode() + b"\n")
            except OSError as error:
                raise self._gone() from error
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        out, end_s = self._process.stdout, time.monotonic() + ANSWER_S
        while out is not None and b"\n" not in self._text:
            ready, _, _ = select.select([out], [], [], max(0.0, end_s - time.monotonic()))
            more = os.read(out.fileno(), 65536) if ready else b""
            if not more:
                raise self._gone()
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> InfeasibleError:
        why = "it does not answer"
        if self._process.poll() is not None and self._process.stderr is not None:
            why = " ".join(self._process.stderr.read().decode(errors="replace").split())[-300:] or "it has ended"
        return InfeasibleError(f"the switch in user space of {self.name} is gone", where=why)

    def close(self) -> None:
        """End the program."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
