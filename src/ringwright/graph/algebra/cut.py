"""D, C and M: a stretch of the graph is cut into parts along a dimension, each part on its own, and what leaves it is joined.

One operation cut along any dimension (D1 to D3: along the one it slices, every part takes a piece of every rank's block); a task
cut along a free or a batch dimension, or along one that is summed up (C1 to C3); an exchange, experts and an exchange back, cut
by tokens (M1); the halves of a batch through a whole block; the columns of a product's second factor (Domino), in a task of which
no more is known, too (``algebra.columns``). Rows of a softmax or a norm, and statistics of a batch, are not cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringwright.graph.algebra.columns import columns_of, has_columns
from ringwright.graph.algebra.editing import StepGraph, dims_of, sent_bytes, times_of
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.graph.algebra.shares import same_as, share_of
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import FUSED, SLICED, Change, Value
from ringwright.model.workload import Payload, Task

CUTTABLE = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "broadcast",
    "reduce",
    "shift",
    "copy",
    "send-recv",
    "push-pull",
)
_DECLARED = ("", "cut", "join", "permute", "slice", "stack", "pad", "copy", FUSED)  # cut where the work says so


@rule("cut", "f(x) = join of f(x_j): a stretch of tasks and operations, part by part along a dimension")
def cut(
    graph: StepGraph, at: str, dim: str, parts: int | Sequence[int] = 2, through: str | Sequence[str] = ()
) -> Change:
    """Cut a task or operation, and all of ``through``, along ``dim`` into ``parts`` (a number, or sizes)."""
    names = list(dict.fromkeys([at, *(through.split(",") if isinstance(through, str) and through else through)]))
    members = [_member(graph, name) for name in names]
    inside = _Region(graph, members, dim)
    sizes = _sizes(inside.size, parts, inside.blocks)
    if len(sizes) < 2:
        raise Refused(f"{dim} in one part is as it was", "parts: 2 or more")
    return inside.cut(sizes)


def _member(graph: StepGraph, name: str) -> Node:
    node: Node | None = graph.tasks.get(name) or graph.payloads.get(name)
    if node is None:
        raise Refused(f"'{name}' is no task and no payload", "names of tasks and payloads")
    return graph.sent_now(node) if isinstance(node, Payload) else node


def _sizes(whole: int, parts: int | Sequence[int], blocks: int) -> list[int]:
    """Return the size of each part: as given, or as even as whole blocks allow; Refused where they are not the whole."""
    if isinstance(parts, int) and parts > whole // blocks:
        raise Refused(
            f"{whole} in {parts} parts, each in {blocks} equal blocks", f"parts: {whole // blocks} at the most"
        )
    if isinstance(parts, int):
        share, rest = divmod(whole // blocks, parts) if parts > 0 else (0, 0)
        sizes = [(share + (at < rest)) * blocks for at in range(parts)]
    else:
        sizes = [int(each) for each in parts]
    if any(each <= 0 or each % blocks for each in sizes) or sum(sizes) != whole:
        told = ", ".join(map(str, sizes[:6])) or "none"
        raise Refused(
            f"{whole} in parts of {told}, each in {blocks} equal blocks", f"parts: fewer, or multiples of {blocks}"
        )
    return sizes


class _Region:
    """Tasks and payloads that are cut together, and the values that they read and write."""

    def __init__(self, graph: StepGraph, members: list[Node], dim: str) -> None:
        self.graph, self.members, self.dim = graph, members, dim
        self.columns = {node.name for node in members if isinstance(node, Task) and self._makes_columns(node)}
        names = dict.fromkeys(name for node in members for name in (*self._reads(node), *self._writes(node)))
        if any(name not in graph.values for name in names):
            raise Refused("not all that it reads and writes is known", "values for all of it")
        self.values = [graph.values[name] for name in names]
        held = [value for value in self.values if dim in dims_of(value)]
        if not held:
            known = dict.fromkeys(name for value in self.values for name, _ in value.dims)
            raise Refused(f"nothing there has a dimension '{dim}'", f"dim: one of {', '.join(known) or 'none'}")
        sizes = {dims_of(value)[dim] for value in held}
        if len(sizes) > 1:
            raise Refused(f"{dim} has sizes {', '.join(map(str, sorted(sizes)))} there", "a shorter stretch")
        self.size = sizes.pop()
        sizes_of = graph.mesh.sizes
        slices = [math.prod(sizes_of[axis] for axis in value.axes(SLICED, dim)) for value in held]
        self.blocks = max(slices)
        self.terms: set[str] = set()  # what the parts write terms of
        self.writers: dict[str, Node] = {}  # of the parts
        self.written = {name for node in members for name in self._writes(node)}
        self.inner = self.written & {name for node in members for name in self._reads(node)}
        self.lag = members[0].lag
        if any(node.lag != self.lag for node in members):
            raise Refused("some of it is done a step later than the rest", "a stretch within a step")
        for node in members:
            self._check(node)

    def _reads(self, node: Node) -> list[str]:
        """Return what a member reads a part of; who makes columns reads all of everything."""
        if isinstance(node, Payload):
            return [node.source]
        return [] if node.name in self.columns else [name for name, _ in node.reads]

    def _writes(self, node: Node) -> list[str]:
        """Return what a member writes a part of; of who makes columns what has none is made by the first part."""
        if isinstance(node, Payload):
            return [node.result]
        return [name for name in node.writes if node.name not in self.columns or self._has(name)]

    def _has(self, name: str) -> bool:
        return self.dim in dims_of(self.graph.values[name])

    def _check(self, node: Node) -> None:
        """Refuse what cannot be cut along the dimension, and note what sums it up."""
        reads = [name for name in self._reads(node) if self._has(name)]
        writes = [name for name in self._writes(node) if self._has(name)]
        if not reads and not writes:
            raise Refused(f"{node.name} has no {self.dim}", "leave it out")
        if isinstance(node, Payload) and node.op not in CUTTABLE:
            raise Refused(f"{node.name} is a {node.op}, which goes as a whole", f"one of: {', '.join(CUTTABLE)}")
        if isinstance(node, Task):
            self._check_task(node, writes)

    # branches: a rule for each meaning that the work of a task may have
    def _check_task(self, node: Task, writes: list[str]) -> None:
        """Refuse a task whose meaning does not go by parts, and note what sums the dimension up."""
        if node.name in self.columns:
            late = next((name for name, _ in node.reads if name in self.written and self._has(name)), "")
            if late:
                raise Refused(f"{node.name} needs all of {self.dim} of {late} at once", "end the stretch there")
            return
        if any(distance and self._has(name) for name, distance in node.reads):  # parameters are read whole by all parts
            raise Refused(f"{node.name} reads a value of an earlier step", "cut within a step")
        meaning = node.work.meaning if node.work else ""
        settings = node.work.settings if node.work else {}
        legal = node.work.cuts if node.work else {}
        if meaning == "einsum":
            if not writes:
                self._sums(node)
        elif meaning in ("rowwise", "sum") and settings.get("along") == self.dim:
            if meaning == "rowwise":
                raise Refused(f"{node.name} needs all of {self.dim} at once", "another dim")
            self._sums(node)
        elif meaning == "pointwise" and settings.get("fn") == "dropout" and not self._is_keyed(settings):
            raise Refused(f"{node.name} draws by place: parts would draw anew", "leave it out")
        elif meaning in _DECLARED and self.dim not in legal:
            what = "what it computes is not known" if not meaning else f"it is a {meaning}"
            raise Refused(
                f"{node.name}: {what}, and no cut along {self.dim} is declared", f"work with cuts: {self.dim}"
            )
        elif not meaning:
            self._unknown(node, writes)
        elif not writes and meaning != "sum":
            raise Refused(f"{node.name} writes nothing with {self.dim}", "leave it out")

    def _makes_columns(self, node: Task) -> bool:
        """Whether the dimension is that of columns which a task of unknown meaning makes, each from all that it reads."""
        known = all(name in self.graph.values for name in (*(name for name, _ in node.reads), *node.writes))
        return known and has_columns(node.work, [self.graph.values[name] for name in node.writes], self.dim)

    def _is_keyed(self, settings: Mapping[str, Any]) -> bool:
        """Whether what is dropped follows from where an element lies, and parts lie in one piece."""
        return settings.get("keyed") == "position" and self.blocks == 1

    def _unknown(self, node: Task, writes: list[str]) -> None:
        """Note the gradients that a task of unknown meaning adds up; Refused where all it writes is something else."""
        if any(self._is_gradient(node, name) for name in node.writes):
            self._sums(node)
        elif node.writes and not writes:
            raise Refused(f"{node.name} writes nothing with {self.dim}", "leave it out")

    def _is_gradient(self, node: Task, name: str) -> bool:
        """Whether a task adds a value up over micro-batches, and so over the samples in them, whatever it computes."""
        return not self._has(name) and self.graph.values[name].per == "step" and node.per == "micro-batch"

    def _sums(self, node: Task) -> None:
        terms = [name for name in node.writes if not self._has(name)]
        if len(self.members) > 1 and any(name in self.inner for name in terms):
            raise Refused(f"{node.name} sums {self.dim} up in the midst of the stretch", "end the stretch there")
        self.terms.update(terms)

    # ---------------------------------------------------------------------------------------------------------- cut
    def cut(self, sizes: list[int]) -> Change:
        """Replace the members by their parts."""
        graph, dim = self.graph, self.dim
        settings = {"along": dim, "blocks": self.blocks, "parts": sizes}
        first = {name: node for node in reversed(self.members) for name in self._reads(node)}
        outside = self._outside()
        pieces: dict[str, list[Value]] = {}
        held = 0
        for value in self.values:
            if value.name in self.terms:
                pieces[value.name] = [self._piece(value, at, value.dims) for at in range(len(sizes))]
                held += value.size_bytes * len(sizes)
                continue
            if dim not in dims_of(value):
                continue
            pieces[value.name] = [self._piece(value, at, self._dims(value, size)) for at, size in enumerate(sizes)]
            held += value.size_bytes
            if value.name not in self.written:
                graph.copying(f"{value.name}.cut", first[value.name], "cut", settings, [value], pieces[value.name])
        operations = 0
        for node in self.members:
            operations += (len(sizes) - 1) * times_of(graph, node) if isinstance(node, Payload) else 0
            self._parts(node, sizes, pieces)
        self._joined(outside, pieces, settings)
        return Change({}, operations, 0.0, held)

    def _piece(self, value: Value, at: int, dims: tuple[tuple[str, int], ...]) -> Value:
        """Add a part of a value, or a term: of what is once a step, each micro-batch of the members has its own."""
        if value.per == "step" and self.members[0].per == "micro-batch":
            return self.graph.value(value, f"{value.name}.{at}", dims=dims, per="micro-batch", kind="buffer")
        return self.graph.value(value, f"{value.name}.{at}", dims=dims)

    def _dims(self, value: Value, size: int) -> tuple[tuple[str, int], ...]:
        return tuple((name, size if name == self.dim else each) for name, each in value.dims)

    def _outside(self) -> dict[str, list[Node]]:
        """Return who reads what is written, besides the members: tasks first."""
        mine = {(isinstance(node, Task), node.name) for node in self.members}
        return {
            name: [each for each in self.graph.readers(name) if (isinstance(each, Task), each.name) not in mine]
            for node in self.members
            for name in self._writes(node)
        }

    def _parts(self, node: Node, sizes: list[int], pieces: dict[str, list[Value]]) -> None:
        """Put the parts of a member in its place."""
        graph, made = self.graph, list[Node]()

        def piece(name: str, at: int) -> str:
            return pieces[name][at].name if name in pieces else name

        for at, size in enumerate(sizes):
            name = graph.fresh(f"{node.name}.{at}")
            if isinstance(node, Payload):
                source, result = (
                    pieces.get(each, [graph.values[each]] * len(sizes))[at] for each in (node.source, node.result)
                )
                part = replace(
                    node,
                    name=name,
                    source=source.name,
                    result=result.name,
                    size_bytes=sent_bytes(node.op, source, result),
                )
                part = replace(part, elements=node.elements * size // self.size)
                graph.payloads[name] = part
                graph.waits.inherit(part, node, producers=True, consumers=True)
                self.writers[part.result] = part
                made.append(part)
                continue
            whole = node.name in self.columns
            task = replace(
                node,
                name=name,
                **self._fields(node, sum(sizes[:at]), size),
                reads=tuple((each if whole else piece(each, at), distance) for each, distance in node.reads),
                writes=tuple(piece(node.writes[each], at) for each in self._kept(node, at)),
            )
            made.append(graph.add(self._keyed(same_as(task, node), node, sum(sizes[:at])), node))
            self.writers |= dict.fromkeys(task.writes, made[-1])
        graph.drop(node, made)

    def _kept(self, node: Task, at: int) -> list[int]:
        """Return the places among what a task writes of what its part number ``at`` writes."""
        first = at == 0 or node.name not in self.columns
        return [number for number, name in enumerate(node.writes) if first or self._has(name)]

    def _fields(self, node: Task, begin: int, size: int) -> Mapping[str, Any]:
        """Return what a part of a task takes, and computes."""
        if node.name in self.columns:
            return columns_of(node, self._kept(node, begin), (self.dim, begin, size, self.size))
        more_s = node.work.cuts.get(self.dim, 0.0) if node.work and begin else 0.0
        return share_of(node, size / self.size, more_s, self.dim)

    def _keyed(self, part: Task, node: Task, begin: int) -> Task:
        """Return a part that drops what the whole would: it says where in the whole it begins."""
        work = part.work
        if work is None or work.settings.get("keyed") != "position":
            return part
        whole = work.settings.get("whole") or self.graph.values[node.writes[0]].dims
        begins = {
            **dict(work.settings.get("begins", ())),
            self.dim: dict(work.settings.get("begins", ())).get(self.dim, 0) + begin,
        }
        settings = {**work.settings, "whole": whole, "begins": tuple(begins.items())}
        return replace(part, work=replace(work, settings=settings))

    def _joined(
        self, outside: dict[str, list[Node]], pieces: dict[str, list[Value]], settings: dict[str, object]
    ) -> None:
        """Join what is read outside, or is there at the end; add up what the parts are terms of."""
        graph = self.graph
        for name, readers in outside.items():
            if name in self.inner and not readers:
                continue
            near = next(iter(readers), None) or self.writers[pieces[name][-1].name]
            if name in self.terms:
                self._added(name, pieces[name], near)
                continue
            behind = isinstance(near, Payload) or near.per != pieces[name][0].per
            near = self.writers[pieces[name][-1].name] if behind else near
            whole = pieces[name], [graph.values[name]], self.lag
            graph.copying(f"{name}.join", near, "join", settings, *whole, behind=behind)

    def _added(self, name: str, terms: list[Value], near: Node) -> None:
        """Add terms up: near who reads the sum, or, where it is also one over micro-batches, behind who writes the last term."""
        graph, total = self.graph, terms[0]
        behind = terms[0].per != graph.values[name].per
        for at, term in enumerate(terms[1:], 1):
            last = at == len(terms) - 1
            into = graph.values[name] if last else graph.value(term, f"{name}.sum{at}")
            where = self.writers[term.name] if behind else near
            added = [total, term], [into], self.lag
            graph.copying(f"{name}.add{at}", where, "pointwise", {"fn": "add"}, *added, behind=behind)
            total = into
