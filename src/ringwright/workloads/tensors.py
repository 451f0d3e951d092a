"""The tensors of a stage as values: how many bytes a rank holds of each, and how they lie on the mesh.

Tokens of the batch are cut over data and context parallel ranks, those of a sequence over tensor parallel ones too where sequence
parallelism is on; what tensor parallelism cuts otherwise are features (heads, the middle of an MLP, the vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringwright.model.values import PARTIAL, SLICED, Placement, Value
from ringwright.model.workload import Mesh
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.step import StepSpec

OWN, ALL, ROUTED, EXPERTS, IMAGES, ANSWERS, PART = "own", "all", "routed", "experts", "images", "answers", "part"


@dataclass
class Tensors:
    """Makes values. ``rows`` of one: tokens as a rank has them between matrices ("own"), all those of its tensor parallel group
    ("all"), those that it sends to another stage ("part"), tokens on their way to experts ("routed"), there ("experts"), images,
    or sequences that are answered ("answers").
    """

    model: ModelCard
    step: StepSpec
    mesh: Mesh
    roles: Mapping[str, tuple[str, ...]]
    known: dict[str, tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]] = field(default_factory=dict)

    @property
    def tp(self) -> tuple[str, ...]:
        """The axes of tensor parallelism."""
        return self.roles["tp"]

    def tensor(
        self,
        name: str,
        of: str,
        rows: str,
        feature: str,
        width: int,
        *,
        each: int = 0,
        cut: tuple[str, ...] = (),
        partial: tuple[str, ...] = (),
        kind: str = "buffer",
        dtype: str = "",
    ) -> Value:
        """Return a value of so many rows x ``width`` elements on a rank, of ``each`` bytes (0: the width of activations).

        ``cut`` are the axes that cut the feature, ``partial`` those over which it is still to be summed.
        """
        number, dims, layout = self.rows(rows)
        layout += tuple(Placement(axis, SLICED, feature) for axis in cut)
        layout += tuple(Placement(axis, PARTIAL) for axis in partial)
        whole = width * self.mesh.extent(cut)
        size = each or self.step.width_bytes
        return Value(
            name,
            of,
            number * width * size,
            (*dims, (feature, whole)),
            layout,
            kind,
            dtype=dtype or ("float32" if size == 4 else "bfloat16" if size == 2 else "uint8"),
        )

    def rows(self, kind: str) -> tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]:
        """Return how many rows of a kind a rank has, the dimensions of the whole, and how they are cut."""
        if kind not in self.known:
            self.known[kind] = {
                OWN: self._tokens,
                ALL: self._tokens,
                PART: self._tokens,
                ROUTED: self._routed,
                EXPERTS: self._at_experts,
                IMAGES: self._sequences,
                ANSWERS: self._sequences,
            }[kind](kind)
        return self.known[kind]

    def _tokens(self, kind: str) -> tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]:
        load, decodes = self.step.load, self.step.mode == "decode"
        replicas = self.roles["dp"]  # along them lie pieces of sequences, too, where there is context parallelism
        context = tuple(axis for axis in self.roles["cp"] if not decodes)
        batch = tuple(axis for axis in replicas if axis not in context)
        inner = self.tp if (kind == OWN and self.step.parallel.sp) or kind == PART else ()
        number = {OWN: load.own_tokens, PART: load.sent_tokens}.get(kind, load.tokens)
        sequence = 1 if decodes else self.step.sequence
        dims = (("batch", self.step.micro_batch_size * self.mesh.extent(batch)), ("sequence", sequence))
        layout = tuple(Placement(axis, SLICED, "batch") for axis in batch)
        layout += tuple(Placement(axis, SLICED, "sequence") for axis in context)
        return number, dims, (*layout, *(Placement(axis, SLICED, "batch" if decodes else "sequence") for axis in inner))

    def _routed(self, _kind: str) -> tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]:
        """Each token once for each of its experts; without sequence parallelism every rank sends all it has."""
        parallel, tokens = self.step.parallel, self.step.load.own_tokens
        number = tokens * self.model.dims["active"]
        axes = (*self.roles["dp"], *(self.tp if parallel.sp or parallel.ep > 1 else ()))
        return number, self._capacity(number, axes), tuple(Placement(axis, SLICED, "tokens") for axis in axes)

    def _at_experts(self, _kind: str) -> tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]:
        parallel, active = self.step.parallel, self.model.dims["active"]
        if parallel.ep == 1:
            number = self.step.load.tokens * active
            axes = self.roles["dp"]
            return number, self._capacity(number, axes), tuple(Placement(axis, SLICED, "tokens") for axis in axes)
        number, dims, layout = self.rows(ROUTED)
        moved = self.roles["ep"]
        others = tuple(each for each in layout if each.axis not in moved)
        return number, dims, (*others, *(Placement(axis, SLICED, "experts") for axis in moved))

    def _capacity(self, number: int, axes: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        """Return the dimensions of routed tokens: experts, and tokens of each, filled up where they do not come out even."""
        experts = self.model.dims["experts"]
        return ("experts", experts), ("tokens", -(-number // experts) * self.mesh.extent(axes))

    def _sequences(self, _kind: str) -> tuple[int, tuple[tuple[str, int], ...], tuple[Placement, ...]]:
        number, axes = self.step.micro_batch_size, self.roles["dp"]
        dims = (("batch", number * self.mesh.extent(axes)),)
        return number, dims, tuple(Placement(axis, SLICED, "batch") for axis in axes)

    def numbers(
        self,
        name: str,
        of: str,
        elements: int,
        size_bytes: int,
        kind: str,
        *,
        cut: tuple[str, ...] = (),
        shared: tuple[str, ...] = (),
        layout: tuple[Placement, ...] = (),
        dtype: str = "float32",
    ) -> Value:
        """Return parameters, or what goes with each of them: ``elements`` that a rank has of what ``cut`` axes share out.

        ``shared`` are axes that share these out once more; numbers are filled up to a multiple of ``layout``'s, too.
        """
        spread = self.mesh.extent(shared) * math.prod(self.mesh.sizes[each.axis] for each in layout)
        whole = -(-elements // spread) * spread * self.mesh.extent(cut)
        lies = tuple(Placement(axis, SLICED, "elements") for axis in (*cut, *shared))
        return Value(name, of, size_bytes, (("elements", whole),), (*lies, *layout), kind, "step", dtype)
