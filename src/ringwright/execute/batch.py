"""Programs in one start of real ranks: each is run once, or twice to be recorded, and every node answers for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringwright.execute import check, launch
from ringwright.execute.job import AskedCollective, Contender, Contest, RankJob
from ringwright.execute.plan import plans
from ringwright.execute.rank_host import here

if TYPE_CHECKING:
    from ringwright.execute.executor import Executor
    from ringwright.execute.job import NodeResult
    from ringwright.execute.plan import NodePlan
    from ringwright.model.program import Program

START_S = 10.0  # for each program, beside the time without progress
SLOWEST_S_PER_BYTE = 40e-9  # of a node: a program that takes longer is taken to hang


def run_all(
    executor: Executor,
    programs: Sequence[Program],
    *,
    timeout_s: float = 20.0,
    seed: int = 0,
    reals: bool = False,
    record: bool = False,
    cut: Callable[[Program], list[NodePlan]] = plans,
) -> list[list[NodeResult]]:
    """Run programs of equally many nodes, checked; return for each program every node's answer.

    ``record``: run each once more, with the times of its messages. ``cut`` makes plans of a program; a test hands in one that
    makes them wrong. RanksFailedError where nothing moved for ``timeout_s`` seconds, or a rank died.
    """
    nodes = programs[0].n_nodes
    rounds = [
        Contest(
            AskedCollective.of(each.collective),
            [Contender(each.name, executor.wire, number)],
            seed=seed,
            keep=True,
            reals=reals,
            record=record,
        )
        for number, each in enumerate(programs)
    ]
    addresses = [place.address for place in here(nodes)]
    job = RankJob(nodes, addresses, rounds, executor.backend, timeout_s)
    moved_s = sum(SLOWEST_S_PER_BYTE * nodes * each.collective.size_bytes for each in programs)
    limit_s = timeout_s + START_S * len(programs) + moved_s
    with launch.job_folder() as folder:
        launch.lay_out(folder, job, [cut(each) for each in programs])
        answers = launch.run(folder, job, executor.starts(folder, nodes), limit_s=limit_s)
    return [[answers[node][number] for node in range(nodes)] for number in range(len(programs))]


def wrong(program: Program, answers: Sequence[NodeResult], *, seed: int = 0) -> str:
    """Return what the ranks hold that they must not, by the interpreter and by the seeds; empty where all is right."""
    difference = check.against_interpreter(program, answers, seed=seed)
    own = sum(answer.wrong for answer in answers)
    return str(difference) if difference else f"{own} elements are not what the seeds say" if own else ""
