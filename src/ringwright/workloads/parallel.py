"""How a job's ranks share a model: the sizes of its axes, read from ``tp8,pp16,dp128,sp,sg,zero1,vp2,ep8``.

Ranks are numbered along a mesh whose axes are, innermost first, tp, cp, dp, pp. Experts are shared out within a pipeline stage:
``ep`` neighbours there, whatever their other axes, hold all experts of a layer once, each of them whole. Where experts are not
shared out, tensor parallelism cuts them like any other matrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from ringwright.graph.pipelines import Shape
from ringwright.ground.errors import UsageError
from ringwright.workloads.model_cards import ModelCard

_WORD = re.compile(r"(tp|pp|vp|cp|ep|dp|zero)[=:]?([0-9]+)")
ZERO_STAGES = (0, 1, 3)
_SWITCHES = ("sp", "sg")


@dataclass(frozen=True)
class Parallel:
    """Ranks of each axis: tensor, pipeline (with ``vp`` chunks a stage), context, expert, data.

    ``stages`` are the layers of each chunk along the model, where they are listed by hand. ``sp`` cuts activations along the
    sequence where tensor parallelism does not; ``sg`` (scatter/gather) lets each tensor parallel rank send its part of a
    stage's output to the next stage, which gathers the parts (arXiv 2104.04473, section 4.1); ``zero`` is 0 (every rank keeps
    all gradients and optimiser states), 1 (optimiser states are shared out) or 3 (parameters too: FSDP). ``folded`` is set by
    schedules that fold the pipeline: the second chunk of a stage goes back, so the first stage has both ends of the model.
    ``sides`` is set by schedules that feed it from both ends: devices of opposite places hold the same two stages and are
    replicas of each other, so ``pp`` counts pairs of them.
    """

    tp: int = 1
    sp: bool = False
    sg: bool = False
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    zero: int = 0
    stages: tuple[int, ...] = ()
    folded: bool = False
    sides: int = 1

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("sp", "sg", "zero", "stages", "folded") and value < 1:
                raise UsageError(f"{each.name} is {value}", remedy=f"{each.name}1 or more")
        if self.zero not in ZERO_STAGES:
            raise UsageError(f"zero{self.zero} is not known here", remedy="zero0, zero1, or zero3 (the same as fsdp)")

    @property
    def shape(self) -> Shape:
        """Where its stages lie."""
        return Shape(self.pp, 1, self.vp, self.folded)

    @property
    def last(self) -> int:
        """The stage that has the end of the model."""
        return self.shape.seat(self.pp * self.vp - 1)[0]

    @property
    def world(self) -> int:
        """How many ranks it takes."""
        return self.tp * self.cp * self.dp * self.sides * self.pp

    @property
    def etp(self) -> int:
        """How many ranks cut an expert."""
        return self.tp if self.ep == 1 else 1

    @property
    def edp(self) -> int:
        """How many ranks hold the same part of the same experts."""
        return self.tp * self.cp * self.dp * self.sides // (self.ep * self.etp)

    @property
    def replicas(self) -> int:
        """How many ranks share the gradient of what is not an expert."""
        return self.cp * self.dp * self.sides

    def __str__(self) -> str:
        axes = [
            f"{name}{getattr(self, name)}" for name in ("tp", "cp", "ep", "dp", "pp", "vp") if getattr(self, name) > 1
        ]
        axes += (
            ["sp"] * self.sp + ["sg"] * self.sg + ["", "zero1", "", "fsdp"][self.zero : self.zero + 1] * bool(self.zero)
        )
        return ",".join(axes) or "one rank"


def parse(text: str, gpus: int | None = None) -> Parallel:
    """Return what ``text`` says, such as ``tp8,pp16,sp,zero1``; what is not named is 1, but dp follows from ``gpus``.

    Raises UsageError for a word that is not known or said twice, and where the product is not ``gpus``.
    """
    said: dict[str, int] = {}
    for word in re.split(r"[,\s]+", text.strip().lower()):
        if not word:
            continue
        match = _WORD.fullmatch(word)
        key, value = (match[1], int(match[2])) if match else _switch(word)
        if key in said:
            raise UsageError(f"'{key}' is said twice in '{text}'", remedy="tp8,pp4,dp2")
        said[key] = value
    sizes: dict[str, Any] = {key: value for key, value in said.items() if key not in _SWITCHES}
    made = replace(Parallel(sp="sp" in said, sg="sg" in said), **sizes)
    if gpus is None:
        return made
    if "dp" not in said and gpus % made.world == 0:
        made = replace(made, dp=gpus // made.world)
    if made.world != gpus:
        inner = made.world // made.dp
        what = " x ".join(f"{name}{getattr(made, name)}" for name in ("tp", "cp", "pp"))
        if gpus % inner:
            raise UsageError(
                f"{gpus} GPUs are no multiple of {what} = {inner}", where=text, remedy=f"--gpus {_next(gpus, inner)}"
            )
        raise UsageError(
            f"{what} x dp{made.dp} is {made.world} ranks, not {gpus}",
            where=text,
            remedy=f"dp{gpus // inner}, or --gpus {made.world}",
        )
    return made


def check(
    card: ModelCard, parallel: Parallel, *, sequence: int, micro_batches: int = 1, micro_batch_size: int = 1
) -> None:
    """Raise UsageError, with the numbers and a remedy, where the model cannot be shared out like that."""
    for name, value in (
        ("sequence", sequence),
        ("micro-batches", micro_batches),
        ("micro-batch size", micro_batch_size),
    ):
        if value < 1:
            raise UsageError(f"{name}: {value}", remedy="1 or more")
    _check_refused(card, parallel)
    if card.takes_samples:
        if parallel.world != parallel.dp or parallel.ep > 1 or parallel.sp or parallel.sg:
            raise UsageError(
                f"{card.size} takes {card.unit}s: {parallel} does not go with it", remedy=f"dp{parallel.world}"
            )
        return
    _check_sent(parallel)
    _check_widths(card, parallel)
    _check_experts(card, parallel)
    _check_tokens(card, parallel, sequence, micro_batches)


def _switch(word: str) -> tuple[str, int]:
    if word in _SWITCHES:
        return word, 1
    if word == "fsdp":
        return "zero", 3
    raise UsageError(
        f"'{word}' says no parallel form", remedy="words like tp8, pp16, vp2, cp2, ep8, dp128, sp, sg, zero1, fsdp"
    )


def _next(gpus: int, inner: int) -> int:
    return -(-gpus // inner) * inner


def _check_refused(model: ModelCard, parallel: Parallel) -> None:
    """Raise UsageError, with its reason, for a form that the family has not."""
    usual = Parallel()
    for axis, (reason, remedy) in model.refused.items():
        if getattr(parallel, axis) != getattr(usual, axis):
            word = "sp" if axis == "sp" else f"{axis}{getattr(parallel, axis)}"
            raise UsageError(f"{model.size} has no {word}: {reason}", remedy=remedy)


def _check_sent(parallel: Parallel) -> None:
    """Raise UsageError where stages send nothing that tensor parallel ranks could share out."""
    if parallel.sg and (parallel.tp == 1 or parallel.pp == 1):
        raise UsageError(
            "sg cuts what stages send among tensor parallel ranks: it needs tp and pp", remedy="leave sg out"
        )
    if parallel.sg and parallel.sp:
        raise UsageError("with sp, what stages send is cut already: sg changes nothing", remedy="leave sg out")


def _check_widths(card: ModelCard, parallel: Parallel) -> None:
    heads = 0 if "state" in card.dims else card.dims["heads"]
    groups = card.dims.get("kv_heads", heads)
    for name, number in (("attention heads", heads), ("key and value heads", groups)):
        if number % parallel.tp:
            fit = [str(tp) for tp in range(1, number + 1) if heads % tp == 0 and groups % tp == 0]
            raise UsageError(
                f"tp{parallel.tp} cannot share {number} {name} of {card.size} evenly",
                remedy=f"a tp of {', '.join(fit)}",
            )
    for layer in card.anatomy().layers():
        if layer.cut not in ("columns", "rows") or layer.name == "head" or (layer.expert and parallel.etp == 1):
            continue
        width = layer.shapes[0][layer.cut_at]
        if width % parallel.tp:
            raise UsageError(
                f"tp{parallel.tp} cannot share the {width} places of '{layer.name}' in {card.size} evenly",
                remedy=f"a tp that divides {width}",
            )
    if card.family == "transformer" and (parallel.pp > 1 or parallel.cp > 1):
        raise UsageError(
            f"{card.size} has an encoder beside its decoder: pp{parallel.pp} and cp{parallel.cp} are for decoders alone",
            remedy=f"tp{parallel.tp},dp{parallel.dp}",
        )


def _check_experts(card: ModelCard, parallel: Parallel) -> None:
    if parallel.ep == 1:
        return
    experts = card.dims.get("experts", 0)
    if not experts:
        raise UsageError(f"{card.size} has no experts to share over ep{parallel.ep}", remedy="leave ep out")
    if experts % parallel.ep:
        raise UsageError(
            f"ep{parallel.ep} cannot share {experts} experts evenly", remedy=f"an ep that divides {experts}"
        )
    ranks = parallel.tp * parallel.cp * parallel.dp
    if ranks % parallel.ep:
        raise UsageError(
            f"ep{parallel.ep} does not divide the {ranks} ranks of a stage (tp{parallel.tp} x cp{parallel.cp} x dp{parallel.dp})",
            remedy=f"an ep that divides {ranks}, or dp{_next(ranks, parallel.ep) // (parallel.tp * parallel.cp)}",
        )


def _pieces(parallel: Parallel) -> tuple[int, str]:
    # A causal ring gives each rank one piece from the front and one from the back, so that all have equal work.
    over_tp = parallel.tp if parallel.sp or parallel.sg else 1
    cuts = ([f"2 x cp{parallel.cp}"] if parallel.cp > 1 else []) + ([f"tp{over_tp}"] if over_tp > 1 else [])
    return (2 * parallel.cp if parallel.cp > 1 else 1) * over_tp, " x ".join(cuts)


def _check_tokens(card: ModelCard, parallel: Parallel, sequence: int, micro_batches: int) -> None:
    pieces, cuts = _pieces(parallel)
    fixed = card.fixed_tokens
    if fixed and sequence != fixed:
        raise UsageError(
            f"an image of {card.size} is {fixed} tokens, not {sequence}",
            remedy="leave --seq out; --dims.image changes the image",
        )
    if sequence % pieces:
        raise UsageError(
            f"a sequence of {sequence} tokens cannot be cut into {pieces} pieces ({cuts})",
            remedy="leave cp, sp and sg out" if fixed else f"--seq {_next(sequence, pieces)}",
        )
    if card.family in ("gpt2", "bert") and sequence > card.dims["positions"]:
        raise UsageError(
            f"{card.size} has learned {card.dims['positions']} positions, not {sequence}",
            remedy=f"--seq {card.dims['positions']}",
        )
    if parallel.vp > 1 and micro_batches % parallel.pp:
        raise UsageError(
            f"{micro_batches} micro-batches do not fill pp{parallel.pp} with vp{parallel.vp}: chunks take turns of {parallel.pp}",
            remedy=f"--micro-batches {_next(micro_batches, parallel.pp)}",
        )
    if parallel.vp > 1 and parallel.pp == 1:
        raise UsageError(f"vp{parallel.vp} without a pipeline", remedy="leave vp out, or add pp2")
