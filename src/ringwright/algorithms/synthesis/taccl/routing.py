"""Routes: for every chunk the arcs that bring it from its origin to all that need it, so that no link carries too much.

Chunks that a turn of the machine maps on each other take each other's routes. Routes are the shortest ways where a link costs the
more the more it carries, chunk after chunk, several times over.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.ordering import ArcTimes
    from ringwright.algorithms.synthesis.taccl.sketch import LogicalTopology

Route = tuple[int, ...]  # arcs, each behind the one that brings the chunk to its source


@dataclass(frozen=True)
class WantedChunk:
    """A chunk, the place that has it and those that need it."""

    number: int
    origin: int
    targets: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True)
class ChunkOrbits:
    """``first`` are chunks of which all others are images: chunk ``at`` is ``first`` number ``of[at]`` turned by ``turn[at]``."""

    first: tuple[int, ...]
    of: tuple[int, ...]
    turn: tuple[int, ...]


def orbits(chunks: Sequence[WantedChunk], wiring: LogicalTopology) -> ChunkOrbits:
    """Return which chunks the turns of the machine map on each other; the parts of one origin stay apart."""
    seen: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for at, chunk in enumerate(chunks):
        seen.setdefault((chunk.origin, chunk.targets), []).append(at)
    of, turned = [-1] * len(chunks), [0] * len(chunks)
    first: list[int] = []
    for at, chunk in enumerate(chunks):
        if of[at] >= 0:
            continue
        part = seen[chunk.origin, chunk.targets].index(at)
        for number, turn in enumerate(wiring.turns or (tuple(range(wiring.p)),)):
            image = seen.get((turn[chunk.origin], tuple(sorted(turn[each] for each in chunk.targets))), ())
            if part < len(image) and of[image[part]] < 0:
                of[image[part]], turned[image[part]] = len(first), number
        first.append(at)
    return ChunkOrbits(tuple(first), tuple(of), tuple(turned))


class Router:
    """Routes of chunks over a wiring, with what they put on each resource."""

    def __init__(
        self, chunks: Sequence[WantedChunk], wiring: LogicalTopology, network: ArcTimes, *, hops: bool = False
    ) -> None:
        self.chunks, self.wiring, self.network = chunks, wiring, network
        self.hops = _hops(wiring) if hops else None
        self.orbits = orbits(chunks, wiring)
        self.images: list[list[int]] = [[] for _ in self.orbits.first]
        for at, of in enumerate(self.orbits.of):
            self.images[of].append(self.orbits.turn[at])
        self.load: dict[int, float] = {}

    def turned(self, route: Route, turn: int) -> Route:
        """Return the image of a route."""
        if not turn:
            return route
        to, arcs, between = self.wiring.turns[turn], self.wiring.arcs, self.wiring.between
        return tuple(between[to[arcs[arc].src], to[arcs[arc].dst]] for arc in route)

    def whole(self, routes: Sequence[Route]) -> list[Route]:
        """Return the routes of all chunks, from those of the first of each orbit."""
        return [self.turned(routes[of], turn) for of, turn in zip(self.orbits.of, self.orbits.turn, strict=True)]

    def greedy(self, weight: float, *, reach: float = 1.0, passes: int = 3, entrances: bool = True) -> list[Route]:
        """Return routes of the first chunk of each orbit: what a link carries makes it longer, ``weight`` says by how much.

        With ``entrances`` a chunk comes into another host once, else over as many links as are short.
        """
        self.load = {}
        routes: list[Route] = [()] * len(self.orbits.first)
        for turn in range(passes if weight else 1):
            for at, chunk in enumerate(self.orbits.first):
                if turn:
                    self._carry(at, routes[at], -1)
                routes[at] = self.route(self.chunks[chunk], weight, reach=reach, entrances=entrances)
                self._carry(at, routes[at], 1)
        return routes

    def _carry(self, at: int, route: Route, sign: int) -> None:
        size = self.chunks[self.orbits.first[at]].size_bytes
        for turn in self.images[at]:
            for arc in self.turned(route, turn):
                for resource, begin, until in self.network.passage(arc, size).busy:
                    self.load[resource] = self.load.get(resource, 0.0) + sign * (until - begin)

    def route(self, chunk: WantedChunk, weight: float, *, reach: float = 1.0, entrances: bool = True) -> Route:
        """Return the shortest ways of one chunk; InfeasibleError that names what keeps it from a target."""
        allowed = self.allowed(chunk)
        most = max(self.load.values(), default=0.0) or 1.0
        cost = {}
        for arc in allowed:
            passing = self.network.passage(arc, chunk.size_bytes)
            full = max((self.load.get(resource, 0.0) for resource, _, _ in passing.busy), default=0.0)
            cost[arc] = max(passing.total_ps, 1) * (1 + weight * full / most)
        into, far = self._shortest(chunk.origin, cost)
        if entrances:
            doors = self._doors(chunk, into, far)
            inside = {arc: each for arc, each in cost.items() if not self.wiring.arcs[arc].remote or arc in doors}
            into, far = self._shortest(chunk.origin, inside, reach)
        elif reach < 1.0:
            into, far = self._shortest(chunk.origin, cost, reach)
        return self.tree(chunk, into)

    def allowed(self, chunk: WantedChunk) -> list[int]:
        """Return the arcs that a chunk may take: out of its origin's host by its senders, into hosts that need it, never back."""
        wiring = self.wiring
        home = wiring.hosts[chunk.origin]
        senders = wiring.senders.get(chunk.origin)
        needing = {wiring.hosts[each] for each in chunk.targets} | {home}
        near = self._near(chunk)
        kept = []
        for number, arc in enumerate(wiring.arcs):
            if near is not None and not (arc.src in near and arc.dst in near):
                continue
            from_host, to_host = wiring.hosts[arc.src], wiring.hosts[arc.dst]
            if from_host not in needing or to_host not in needing:
                continue
            if arc.remote and (from_host != home or (senders is not None and arc.src not in senders)):
                continue
            kept.append(number)
        return kept

    def _near(self, chunk: WantedChunk) -> set[int] | None:
        """Return the places on the shortest ways by number of links, where only those may be used."""
        if self.hops is None:
            return None
        far = self.hops
        return {
            node
            for target in chunk.targets
            for node in range(self.wiring.p)
            if far[chunk.origin][node] + far[node][target] == far[chunk.origin][target]
        }

    def _shortest(
        self, origin: int, cost: dict[int, float], reach: float = 1.0
    ) -> tuple[dict[int, int], dict[int, float]]:
        """Return the arc into each place on the shortest way from the origin, and how far it is."""
        leaving, arcs = self.wiring.leaving, self.wiring.arcs
        far: dict[int, float] = {origin: 0.0}
        into: dict[int, int] = {}
        done: set[int] = set()
        front = [(0.0, origin)]
        while front:
            at, node = heapq.heappop(front)
            if node in done:
                continue
            done.add(node)
            for arc in leaving[node]:
                if arc not in cost:
                    continue
                there, behind = arcs[arc].dst, reach * at + cost[arc]
                if there not in done and behind < far.get(there, float("inf")):
                    far[there], into[there] = behind, arc
                    heapq.heappush(front, (behind, there))
        return into, far

    def _doors(self, chunk: WantedChunk, into: dict[int, int], far: dict[int, float]) -> set[int]:
        """Return for each other host the one arc into it that is reached first."""
        hosts, arcs = self.wiring.hosts, self.wiring.arcs
        best: dict[int, tuple[float, int]] = {}
        for node, arc in into.items():
            if arcs[arc].remote:
                best[hosts[node]] = min(best.get(hosts[node], (float("inf"), 0)), (far[node], arc))
        return {arc for _, arc in best.values()}

    def tree(self, chunk: WantedChunk, into: dict[int, int]) -> Route:
        """Return the arcs that lead from the origin to the targets, nearest first, of those ``into`` each place."""
        arcs = self.wiring.arcs
        needed: set[int] = set()
        for target in chunk.targets:
            node = target
            while node != chunk.origin:
                if node not in into:
                    raise self._unreached(chunk, target)
                if into[node] in needed:
                    break
                needed.add(into[node])
                node = arcs[into[node]].src
        order: list[int] = []
        below: dict[int, list[int]] = {}
        for arc in sorted(needed):
            below.setdefault(arcs[arc].src, []).append(arc)
        front = [chunk.origin]
        while front:
            row = below.get(front.pop(0), [])
            order += row
            front += [arcs[arc].dst for arc in row]
        return tuple(order)

    def _unreached(self, chunk: WantedChunk, target: int) -> InfeasibleError:
        wiring = self.wiring
        senders = wiring.senders.get(chunk.origin)
        if senders is not None and wiring.hosts[target] != wiring.hosts[chunk.origin]:
            why = f"gpus_to_sender_rev_map lets it leave by rank {', '.join(map(str, senders))} alone"
            near = self._near(chunk)
            if near is not None and not near & set(senders):
                why += f", and the shortest ways by number of links go over {', '.join(map(str, sorted(near)))}"
        else:
            why = "the links that the sketch keeps do not join them"
        return InfeasibleError(
            f"the sketch {wiring.name} cannot bring the data of rank {chunk.origin} to rank {target}: {why}",
            where=f"chunk {chunk.number}",
            remedy="a sketch with more links, or none" if self.hops is None else "paths=relayed",
        )


def _hops(wiring: LogicalTopology) -> list[list[float]]:
    """Return how many arcs lie between any two places, at the least."""
    table = []
    for origin in range(wiring.p):
        far = [float("inf")] * wiring.p
        far[origin], front = 0.0, [origin]
        for node in front:
            for arc in wiring.leaving[node]:
                there = wiring.arcs[arc].dst
                if far[there] == float("inf"):
                    far[there] = far[node] + 1
                    front.append(there)
        table.append(far)
    return table
