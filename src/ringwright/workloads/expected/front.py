"""The one question: which collectives does this model issue in this parallel form?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ringwright.workloads.expected import data, expert, pipeline, serving, sharded, tensor
from ringwright.workloads.expected.legal import check
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.tuning import tuned


@dataclass(frozen=True)
class Ask:
    """A grid point: sequences (or images) of one data rank and step, tokens of each, and what the parallel forms want to know."""

    card: ModelCard
    parallel: Mapping[str, int | str]
    mode: str
    batch: int
    sequence: int
    micro_batches: int = 1
    dtype: str = "float32"
    bucket_cap_mb: float | None = None
    rank_of_update: int = 8
    rank: int = 0

    def ranks(self, role: str, otherwise: int = 1) -> int:
        """Return how many ranks share a role."""
        return int(self.parallel.get(role, otherwise))


def expected(
    card: ModelCard,
    parallel: Mapping[str, int | str],
    mode: str = "training",
    *,
    batch: int,
    sequence: int,
    micro_batches: int = 1,
    dtype: str = "float32",
    bucket_cap_mb: float | None = None,
    rank_of_update: int = 8,
    rank: int = 0,
) -> list[ExpectedRow]:
    """Return what one rank issues, before anything has run.

    ``parallel`` is {"form": ..., "dp": ranks, "tp": ...}; ``rank`` matters in a pipeline only. Raises UsageError where the
    form is not legal for the family, the mode or the dimensions.
    """
    ask = Ask(card, parallel, mode, batch, sequence, micro_batches, dtype, bucket_cap_mb, rank_of_update, rank)
    form = check(card, parallel, mode)
    return FORMS[form](ask)


def _nothing(_ask: Ask) -> list[ExpectedRow]:
    return []


def _data(ask: Ask) -> list[ExpectedRow]:
    anatomy = tuned(ask.card, ask.mode, ask.rank_of_update)
    return data.rows(anatomy, ask.ranks("dp"), ask.dtype, ask.bucket_cap_mb) if ask.mode != "inference" else []


def _sharded(ask: Ask) -> list[ExpectedRow]:
    return sharded.rows(tuned(ask.card, ask.mode, ask.rank_of_update), ask.ranks("dp"), ask.mode, ask.dtype)


def _tensor(ask: Ask) -> list[ExpectedRow]:
    card, ranks, batch, sequence, dtype = ask.card, ask.ranks("tp"), ask.batch, ask.sequence, ask.dtype
    if card.family == "deepseek-v3" and ask.mode == "inference":
        return serving.rows(card.dims, ranks, batch, sequence, dtype)
    return tensor.rows(card, ranks, ask.mode, batch, sequence, dtype)


def _both(ask: Ask) -> list[ExpectedRow]:
    """Tensor parallel inside, fully sharded outside: what a rank of ``tp`` holds is sharded over ``dp``."""
    held = tensor.cut(tuned(ask.card, ask.mode, ask.rank_of_update), ask.ranks("tp"))
    return [*_tensor(ask), *sharded.rows(held, ask.ranks("dp"), ask.mode, ask.dtype)]


def _expert(ask: Ask) -> list[ExpectedRow]:
    anatomy, capacity = tuned(ask.card, ask.mode, ask.rank_of_update), ask.ranks("capacity", 0)
    return expert.rows(ask.card, anatomy, ask.ranks("ep"), capacity, ask.mode, ask.batch, ask.sequence, ask.dtype)


def _pipeline(ask: Ask) -> list[ExpectedRow]:
    stages, stage = ask.ranks("pp"), ask.rank
    return pipeline.rows(ask.card, stages, stage, ask.mode, ask.batch, ask.sequence, ask.micro_batches, ask.dtype)


FORMS: dict[str, Callable[[Ask], list[ExpectedRow]]] = {
    "none": _nothing,
    "ddp": _data,
    "fsdp": _sharded,
    "tp": _tensor,
    "tp+fsdp": _both,
    "ep": _expert,
    "pp": _pipeline,
}
