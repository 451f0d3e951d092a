"""``ringwright synthesise``: the best program for a collective on a machine, and the proof how good it is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.cli.groups import GroupOptions, plan_together
from ringwright.cli.sizes import Sizes
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

EVERYWHERE, ONE, UNGROUPED = MachineOptions(), Sizes(begin="1G"), GroupOptions()


def synthesise(
    collective: Annotated[str, Parameter(group=options.QUESTION)],
    *,
    method: Annotated[str, Parameter(group=options.QUESTION)] = "usual",
    size: Annotated[str | None, Parameter(group=options.SIZES)] = None,
    sizes: Sizes = ONE,
    machine: MachineOptions = EVERYWHERE,
    groups: GroupOptions = UNGROUPED,
    root: Annotated[int, Parameter(group=options.QUESTION)] = 0,
    link_model: options.LinkModel = "pipelined",
    budget: Annotated[str | None, Parameter(group=options.LIMITS)] = None,
    fresh: Annotated[bool, Parameter(group=options.LIMITS)] = False,
    alone: Annotated[bool, Parameter(group=options.OUTPUT)] = False,
    to: Annotated[str | None, Parameter(group=options.OUTPUT)] = None,
    output: options.Target = None,
    html: Annotated[Path | None, Parameter(group=options.OUTPUT)] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Search for the fastest program of a collective on a machine: checked, timed, beside its bound and all other algorithms.

    Parameters
    ----------
    collective
        all-gather, reduce-scatter, all-reduce, broadcast, ...
    method
        How to search: forest, expand, sccl, taccl, blink, p2, flow-all-to-all, or several; usual: forest or flow-all-to-all, and
        expand where that is more than 1 % above the bound; best: all, and which algorithm is fastest at which size.
    size
        Bytes, the size column of nccl-tests (1G); -b, -e and -f for several.
    root
        Place of the root in the group.
    budget
        Time after which a search stops with the best so far, such as 10s.
    fresh
        Search again, although the same was asked before.
    alone
        Leave out what all other algorithms take.
    to
        Write the best program as msccl-xml, mscclpp-json, ... to --output; of several sizes one for each region of sizes.
    output
        The file of the program; of several sizes a folder, with what picks one by size.
    html
        Write one HTML page: the machine, the trees, links over time, everyone else.
    force
        Overwrite what is there.
    json
        Print one JSON object instead (schema ringwright.synthesise/1).

    Examples
    --------
    ringwright synthesise all-gather --fabric dgx-a100:2 --size 1G
    ringwright synthesise all-reduce --fabric torus:3x3 --fault 'link rank0 rate 50%' --size 64M --alone
    ringwright synthesise all-reduce --fabric torus:2x4 --groups tp=2,dp=4 --beside 'all-reduce 64M on dp' --size 64M
    """
    from ringwright.algorithms.searching import stoppable
    from ringwright.formats.exports.placement import claim_file
    from ringwright.ground.units import parse_time
    from ringwright.reports.calls import synthesised
    from ringwright.reports.pages import synthesised_page
    from ringwright.search import study
    from ringwright.search import written as files
    from ringwright.search.question import SynthesisSpec
    from ringwright.search.seen import seen

    if size is not None and sizes != ONE:
        raise UsageError(
            "--size and --begin both say the size", remedy="-b, -e and -f for several sizes, --size for one"
        )
    if output is not None and to is None:
        raise UsageError(f"nothing says what to write to {output}", remedy=f"--to msccl-xml -o {output}")
    if html is not None:
        claim_file(html, force=force)
    topology = machine.build()
    question = SynthesisSpec(
        collective,
        topology,
        group(machine.ranks, topology),
        root,
        budget_s=None if budget is None else parse_time(budget),
        link_model=link_model,
        seed=machine.seed,
        fresh=fresh,
        healthy=replace(machine, fault=()).build() if machine.fault else None,
    )
    wanted = sizes.or_one(size, ONE).listed(collective)
    if calls := groups.calls(collective, wanted, question.collective(0).group):
        if to is not None or html is not None or method not in ("usual", "forest"):
            raise UsageError(
                "groups are planned together as forests, and not written", remedy="leave out --method, --to and --html"
            )
        return plan_together(question, calls, json=json)
    target = None if to is None else files.target(to, output, len(wanted))
    with stoppable(), progress.steps("searching") as advance:
        result = study.synthesise(question, wanted, method, rivals=not alone, progress=advance)
    written = None if to is None or target is None else files.write(result, to, target, force=force)
    if html is not None:
        drafts.write(
            html, synthesised_page.synthesis_page(result, seen(result), reading.command_line(), machine.words())
        )
    if json:
        reading.print_json(result.document())
        return 0
    synthesised.write(result, sys.stdout)
    if written is not None:
        synthesised.write_files(written, sys.stdout)
    if html is not None:
        print(f"wrote {html}; open it in a browser")
    return 0
