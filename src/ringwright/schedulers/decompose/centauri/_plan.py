"""What Centauri does to a graph: the rules that bring each site into the form and the chunks that were chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringwright.graph.algebra import RewriteError, rewritten
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.centauri._operation import WHOLE, PartitionChoice
from ringwright.schedulers.decompose.centauri._stretches import Site

Todo = list[tuple[str, str, Mapping[str, Any]]]
LEVELS = {
    "all-reduce": "hierarchical-all-reduce",
    "reduce-scatter": "hierarchical-reduce-scatter",
    "all-gather": "hierarchical-all-gather",
    "all-to-all": "hierarchical-all-to-all",
}


@dataclass(frozen=True)
class Planned:
    """Sites with what was chosen for each, and the axes of the mesh that are two, by the neighbours inside."""

    chosen: tuple[tuple[Site, PartitionChoice], ...]
    inside: Mapping[tuple[str, ...], int]

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return any(choice.chunks > 1 or set(choice.forms) != {WHOLE} for _, choice in self.chosen)

    @property
    def said(self) -> str:
        """What was chosen, counted by forms and chunks."""
        counted = Counter(
            (choice.chunks, tuple(dict.fromkeys(form for form in choice.forms if form != WHOLE)))
            for _, choice in self.chosen
            if choice.chunks > 1 or set(choice.forms) != {WHOLE}
        )
        levels = "".join(f", {m} neighbours along {', '.join(axes)} a level" for axes, m in self.inside.items())
        listed = [
            f"{many} stretches{f' in {chunks} chunks' if chunks > 1 else ''}{f' by {how}' if (how := ', '.join(forms)) else ''}"
            for (chunks, forms), many in sorted(counted.items())
        ]
        return "; ".join(listed) + levels


def carried_out(workload: Workload, plan: Planned) -> tuple[Workload, list[str]]:
    """Return the workload with the plan's rules applied, and sentences about sites where one did not apply."""
    refused: list[str] = []
    while True:
        try:
            return _carried_out(workload, plan), refused
        except RewriteError as error:
            site = next(
                (
                    site
                    for site, choice in plan.chosen
                    if choice.chunks > 1
                    and any(error.at == each or error.at.startswith(f"{each}.") for each in site.names)
                ),
                None,
            )
            if site is None:
                raise
            alike = site.names[0].rpartition(".")[2], len(site.names), site.dim
            kept = tuple(
                (other, choice)
                for other, choice in plan.chosen
                if (other.names[0].rpartition(".")[2], len(other.names), other.dim) != alike
            )
            refused.append(f"{len(plan.chosen) - len(kept)} sites like {site.at} left as they are: {error.what}")
            plan = replace(plan, chosen=kept)


def _carried_out(workload: Workload, plan: Planned) -> Workload:
    used = {
        workload.payload[name].axes
        for site, choice in plan.chosen
        for name, form in _forms(workload, site, choice)
        if form.startswith("levels")
    }
    split = {axes[0]: inside for axes, inside in plan.inside.items() if len(axes) == 1 and axes in used}
    todo: Todo = [("split-axis", axis, {"inside": inside}) for axis, inside in split.items()]
    todo += [
        ("cut", site.at, {"dim": site.dim, "parts": choice.chunks, "through": [n for n in site.names if n != site.at]})
        for site, choice in plan.chosen
        if choice.chunks > 1
    ]
    made = rewritten(workload, todo) if todo else workload
    pieces, forms = pieces_of(workload, made), list[tuple[str, str, str]]()
    for site, choice in plan.chosen:
        for name, form in _forms(workload, site, choice):
            forms += [(name, form, piece) for piece in (pieces[name] if choice.chunks > 1 else [name])]
    todo = [
        each
        for name, form, piece in forms
        for each in _rules(piece, workload.payload[name].op, workload.payload[name].axes, form)
    ]
    return rewritten(made, todo) if todo else made


def pieces_of(before: Workload, after: Workload) -> dict[str, list[str]]:
    """Return the parts of each payload that was cut, in order."""
    pieces: dict[str, list[str]] = defaultdict(list)
    for payload in after.payloads:
        if payload.name not in before.payload:
            pieces[payload.name.rpartition(".")[0]].append(payload.name)
    return pieces


def _forms(workload: Workload, site: Site, choice: PartitionChoice) -> Iterator[tuple[str, str]]:
    yield from zip((name for name in site.names if name in workload.payload), choice.forms, strict=True)


def _rules(name: str, op: str, axes: Sequence[str], form: str) -> Todo:
    """Return the rules that bring one collective into a form."""
    inner = f"{axes[0]}-inside" if len(axes) == 1 else axes[-1]
    if form == "scatter-gather":
        return [("split-all-reduce", name, {})]
    if form == "exchange":
        return [("reduce-scatter-by-all-to-all", name, {})]
    if form == "ring":
        return [(f"ring-{op}", name, {})]
    if form == "levels":
        return [(LEVELS[op], name, {"inner": inner, **({"first": "across"} if op == "all-gather" else {})})]
    if form == "levels-scatter-gather":
        return [("hierarchical-all-reduce", name, {"inner": inner}), ("split-all-reduce", f"{name}.across", {})]
    return []
