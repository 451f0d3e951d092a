"""The paper's conclusions as tables: steps by topology, slow-downs by disturbance, other programs, and steps again as packets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.reports import layout, tables
from ringwright.reports.steps.jobs import milliseconds
from ringwright_lab.sweep.experiment_view import ConcludedStep, ConclusionsView, PacketStep

if TYPE_CHECKING:
    from rich.console import Console

HEALTHY = "healthy"
WHERE = {"small buffers": "in all switches, or at all links where there are none"}
Answers = Sequence[ConcludedStep]


def write_conclusions(out: Console, concluded: ConclusionsView) -> None:
    """Write what was simulated, where anything was; the engine of each answer stands beside it."""
    answers: Answers = concluded.answers
    if not answers:
        return
    fabrics = list(dict.fromkeys(each.fabric for each in answers))
    layout.heading(out, "Step in ms, healthy", "by the library's own choice, engine events; the fastest is starred")
    layout.table(out, ("model", *fabrics), _steps(answers, fabrics), left=("model",))
    names = list(dict.fromkeys(each.disturbance for each in answers if each.disturbance != HEALTHY))
    for name in names:
        mine = [each for each in answers if each.disturbance == name]
        engines = ", ".join(dict.fromkeys(each.engine for each in mine))
        aside = f"engine {engines}; {WHERE.get(name, 'at the costliest of three ports')}"
        if "thinner" in engines:
            aside += "; a loss is a link of less rate to it: packets below say what it may cost"
        layout.heading(out, f"Slow-down by {name}", aside)
        layout.table(out, ("model", *fabrics), _slowdowns(mine, fabrics), left=("model",))
    layout.heading(out, "Best other program", "step by the library over step by it; engine events")
    layout.table(out, ("model", *fabrics), _best(answers, fabrics), left=("model", *fabrics))
    _again(out, concluded.packets)
    for name, why in concluded.unanswered.items():
        layout.line(out, f"{name}: not answered: {why}", style="yellow")


def concluded_table(answers: Answers) -> tables.PageTable:
    """Return every answer as one table of the page."""
    columns = ["Model", "Fabric", "Disturbance", "Fault", "Program", "Engine", "Step ms", "Slow-down", "Why not"]
    told = [
        [
            *map(tables.text, (each.model, each.fabric, each.disturbance, each.fault, each.algorithm, each.engine)),
            tables.number(each.step_us, milliseconds),
            tables.number(each.slowdown, _three),
            tables.text(each.why),
        ]
        for each in answers
    ]
    return tables.table(
        "concluded", "Every simulated step", columns, told, most=400, whole="the same command with --json"
    )


def again_table(checks: Sequence[PacketStep]) -> tables.PageTable:
    """Return the steps that were run again as packets as a table of the page."""
    columns = ["Model", "Fabric", "Disturbance", "By events", "By packets", "Ratio", "Why not"]
    told = [
        [
            *map(tables.text, (each.model, each.fabric, each.disturbance)),
            *(tables.number(ratio, _three) for ratio in (each.by_events, each.by_packets, each.ratio)),
            tables.text(each.why),
        ]
        for each in checks
    ]
    return tables.table("again", "Slow-downs again, by packets", columns, told, whole="the same command with --json")


def _three(value: float) -> str:
    return f"{value:.3f}"


def _models(answers: Answers) -> list[str]:
    return list(dict.fromkeys(each.model for each in answers))


def _own(answers: Answers, model: str, spelled: str, name: str = HEALTHY) -> float | None:
    """Return the step of a model on a fabric by the library's own choice, us."""
    for each in answers:
        if (each.model, each.fabric, each.disturbance) == (model, spelled, name) and not each.algorithm:
            return each.step_us
    return None


def _steps(answers: Answers, fabrics: Sequence[str]) -> list[tuple[str | None, ...]]:
    rows = []
    for model in _models(answers):
        times = [_own(answers, model, each) for each in fabrics]
        best = min((each for each in times if each is not None), default=None)
        told = (None if each is None else milliseconds(each) + "*" * (each == best) for each in times)
        rows.append((model, *told))
    return rows


def _slowdowns(answers: Answers, fabrics: Sequence[str]) -> list[tuple[str | None, ...]]:
    known = {(each.model, each.fabric): each for each in answers}
    rows = []
    for model in _models(answers):
        told = (known.get((model, each)) for each in fabrics)
        rows.append(
            (
                model,
                *(None if each is None else _three(each.slowdown) if each.slowdown else "ends" for each in told),
            )
        )
    return rows


def _best(answers: Answers, fabrics: Sequence[str]) -> list[tuple[str | None, ...]]:
    rows = []
    for model in _models(answers):
        told: list[str | None] = []
        for spelled in fabrics:
            others = [
                each
                for each in answers
                if (each.model, each.fabric) == (model, spelled) and each.algorithm and each.step_us
            ]
            usual = _own(answers, model, spelled)
            best = min(others, key=lambda each: each.step_us or 0.0, default=None)
            told.append(
                None if best is None or not usual else f"{best.algorithm} {_three(usual / (best.step_us or usual))}"
            )
        rows.append((model, *told))
    return rows


def _again(out: Console, checks: Sequence[PacketStep]) -> None:
    if not checks:
        return
    layout.heading(
        out, "Steps again, their largest operations as packets", "slow-down by each, and packets over events"
    )
    told = [
        (
            f"{each.model} on {each.fabric}, {each.disturbance}",
            *(None if ratio is None else _three(ratio) for ratio in (each.by_events, each.by_packets, each.ratio)),
        )
        for each in checks
    ]
    layout.table(out, ("step", "events", "packets", "ratio"), told, left=("step",))
    for each in checks:
        if each.why:
            layout.line(out, f"{each.model} on {each.fabric}, {each.disturbance}: {each.why}", style="yellow")
