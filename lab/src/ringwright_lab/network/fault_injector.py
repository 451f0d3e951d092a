"""Carries the fault script out: one thread that waits for each moment, changes what changes, and notes when it did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ringwright.ground.errors import RingwrightError
from ringwright.model.topology import Fault
from ringwright_lab.network import shaping
from ringwright_lab.network.flows import RunningFlow
from ringwright_lab.network.namespaces import Inside, batches
from ringwright_lab.network.script import IMPAIRMENTS, LEAST_LATENCY_S, Moment, Script, told
from ringwright_lab.network.suspender import Suspender

if TYPE_CHECKING:
    from ringwright_lab.network.bridges import UserSwitch
    from ringwright_lab.network.capture import Capture
    from ringwright_lab.network.spec import LabSpec, Port


class FaultInjector:
    """The state of every link and rank as the script has made it so far; ``factors`` are of the healthy rates."""

    def __init__(
        self, spec: LabSpec, script: Script, inside: list[Inside], switches: Iterable[UserSwitch], capture: Capture
    ) -> None:
        self.spec, self.script, self.zero_s = spec, script, 0.0
        self.factors = [1.0] * len(spec.ports)
        self.buffers = [shaping.QUEUE_BYTES] * len(spec.ports)
        self.impaired: set[tuple[int, str]] = set()
        self.flowing = 0
        self.failure = ""
        self._inside, self._capture = inside, capture
        self._switches = {name: switch for switch in switches for name in switch.links}
        self._suspenders = {rank: Suspender(inside[rank]) for rank in range(spec.n)}
        self._flows: dict[int, RunningFlow] = {}
        self._down: set[int] = set()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def rates(self) -> list[float]:
        """Bytes/s of every link as it is now."""
        return [port.rate * factor for port, factor in zip(self.spec.ports, self.factors, strict=True)]

    @property
    def is_disturbed(self) -> bool:
        """Whether a link is dead, loses, delays or marks, or a flow competes."""
        return bool(self.impaired or self.flowing or not all(self.factors))

    def set_up(self, links: Iterable[int]) -> None:
        """Give links the latency and loss that the healthy machine has."""
        top = self.spec.topology
        for link in sorted(links):
            latency_s = float(top.latency_s[link])
            loss = 0.0 if top.loss is None else float(top.loss[link])
            latency_s = latency_s if latency_s >= LEAST_LATENCY_S else 0.0
            self._switches[self.spec.link_name(link)].order(
                link=self.spec.link_name(link), latency_s=latency_s, loss=loss
            )

    def start(self) -> float:
        """Set the script's clock to zero; return the monotonic time of that."""
        for flow in self.script.flows:
            self._flows[flow.number] = RunningFlow(flow, flow.number, self._inside)
        self.zero_s = time.monotonic()
        self._capture.event("script starts", script_s=0.0)
        first = [moment for moment in self.script.moments() if moment.time_s <= 0.0]
        for moment in first:
            self._change(moment)
        self._thread = threading.Thread(target=self._play, args=(len(first),), name="fault script", daemon=True)
        self._thread.start()
        return self.zero_s

    def _play(self, done: int) -> None:
        for moment in self.script.moments()[done:]:
            if self._end.wait(max(0.0, self.zero_s + moment.time_s - time.monotonic())):
                return
            self._change(moment)

    def _change(self, moment: Moment) -> None:
        began_s = time.monotonic()
        words: dict[str, object] = {"script_s": moment.time_s, "what": told(self.spec, moment)}
        try:
            notes = [*self._rates(moment.rows), *self._impairments(moment.rows), *self._ranks(moment.rows)]
            for flow in moment.starting:
                self._flows[flow.number].begin()
            for flow in moment.ending:
                self._flows[flow.number].end()
            self.flowing += len(moment.starting) - len(moment.ending)
        except (RingwrightError, OSError) as error:
            if not self._end.is_set():
                self.failure = f"{words['what']}: {error}"
                self._capture.event("fault failed", why=str(error), **words)
            return
        if notes:
            words["note"] = "; ".join(dict.fromkeys(notes))
        late_s = began_s - self.zero_s - moment.time_s
        self._capture.event("fault", **words, late_s=late_s, took_s=time.monotonic() - began_s)

    def _rates(self, rows: Iterable[Fault]) -> list[str]:
        """Give links their rates and queues: HTB's, a queue of nothing for a dead direction, the port down for a dead cable."""
        changed = set()
        for row in rows:
            if row.kind == "link" and row.field in ("rate_factor", "buffer_bytes"):
                changed.add(row.target)
                if row.field == "rate_factor":
                    self.factors[row.target] = row.value
                else:
                    self.buffers[row.target] = int(row.value) or shaping.QUEUE_BYTES
        lines: dict[tuple[int, str], list[str]] = {}
        for link in sorted(changed):
            for port, tool, line in self._orders(link):
                if line not in lines.setdefault((port.node, tool), []):
                    lines[port.node, tool].append(line)
        batches((self._inside[node], tool, commands) for (node, tool), commands in sorted(lines.items()))
        return []

    def _orders(self, link: int) -> Iterable[tuple[Port, str, str]]:
        port, back = self.spec.ports[link], self.spec.ports[self.spec.reverse[link]]
        is_dead = not self.factors[port.link] and not self.factors[back.link]
        switch_end = next((end for end in (port, back) if end.node >= self.spec.n), None)
        if switch_end is not None and is_dead != (switch_end.link in self._down):
            (self._down.add if is_dead else self._down.discard)(switch_end.link)
            yield switch_end, "ip", f"link set dev {switch_end.name} {'down' if is_dead else 'up'}"
        rate = port.rate * self.factors[link]
        if rate:
            yield port, "tc", shaping.rated(port, rate)
        yield port, "tc", shaping.queued(port, self.buffers[link] if rate else 1)

    def _impairments(self, rows: Iterable[Fault]) -> list[str]:
        notes = []
        for row in rows:
            if row.kind != "link" or row.field not in IMPAIRMENTS:
                continue
            name, value = self.spec.link_name(row.target), row.value
            if row.field == "latency_s" and value < LEAST_LATENCY_S:
                if value > self.spec.topology.latency_s[row.target]:
                    notes.append(f"below {LEAST_LATENCY_S * 1e6:g} us a link's latency is that of the kernel")
                value = 0.0
            self._switches[name].order(link=name, **{row.field: value})
            (self.impaired.add if value else self.impaired.discard)((row.target, row.field))
        return notes

    def _ranks(self, rows: Iterable[Fault]) -> list[str]:
        notes = []
        for row in rows:
            if row.kind != "rank":
                continue
            suspender = self._suspenders[row.target]
            if row.field == "killed" and row.value:
                notes.append(f"{suspender.kill()} processes of {self.spec.topology.label(row.target)} killed")
            elif row.field == "stopped":
                suspender.is_stopped = bool(row.value)
            elif row.field == "compute_factor":
                suspender.factor = min(1.0, row.value)
                if row.value > 1.0:
                    notes.append("a rank cannot be made faster")
            suspender.set()
        return notes

    def close(self) -> None:
        """End the script, let go of the ranks, end the flows."""
        self._end.set()
        steps: list[Callable[[], object]] = [self._thread.join] if self._thread is not None else []
        steps += [each.close for each in self._suspenders.values()]
        steps += [each.end for each in self._flows.values()]
        for step in steps:
            step()
