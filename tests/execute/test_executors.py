"""Real ranks: every executor's results, what a wrong plan looks like, who is blamed, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from patience import HANG_S
from ringwright.algorithms.blocks.ring import ring
from ringwright.execute import batch, check, data, job, launch
from ringwright.execute.arithmetic import STORED, STORED_BYTES
from ringwright.execute.backends import ordinary
from ringwright.execute.executors import EXECUTORS, Executor, executor
from ringwright.execute.mpi_runtime import available
from ringwright.execute.plan import Do, Extent, NodePlan, plans
from ringwright.execute.push import Pushed
from ringwright.execute.sockets import Sockets
from ringwright.execute.watch import let_others_say
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.collective import OPS, PER_RANK, PREFIXES, REDUCE_OPS, REDUCING, ROOTED, Collective
from ringwright.model.program import Program
from ringwright.model.registry import find
from ringwright_lab.contracts import real_ranks
from ringwright_lab.contracts.algorithm import AlgorithmCase

pytestmark = pytest.mark.once

NO_MPI = importlib.util.find_spec("mpi4py") is None or len(available()) < 2
NO_TORCH = importlib.util.find_spec("torch") is None
mpi = [pytest.mark.mpi, pytest.mark.skipif(NO_MPI, reason="the MPI wheels are absent: no ranks over MPI")]
torch = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks"),
]
PLAIN = ("memory", "sockets")
EVERY = [*PLAIN, pytest.param("openmpi", marks=mpi), pytest.param("gloo", marks=torch)]
FASTER, GLOO = EVERY[:3], EVERY[3:]


def processes(words: str) -> set[int]:
    """Return who has these words in the command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


# Ranks that are killed, stopped, lost or raise are programs, as those on gloo in batches; where many cases run they are forks.
PROGRAMS = (
    "test_a_killed_rank_is_named",
    "test_a_stopped_rank_is_named",
    "test_a_lost_message_is_named",
    "test_a_rank_that_raises_is_named",
    "test_a_rank_that_cannot_begin_shows_its_last_words",
    "test_a_rank_that_starts_late_is_waited_for",
)


@pytest.fixture(autouse=True)
def loaded_once(request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params.get("name", "") if hasattr(request.node, "callspec") else ""
    if name == "gloo" or (name != "gloo-batched" and request.node.originalname not in PROGRAMS):
        request.getfixturevalue("forked_ranks")


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No folder of a job, no process that knows it, and no session file of an MPI library stays."""
    folders: list[Path] = []
    make = launch.job_folder

    @contextlib.contextmanager
    def noted() -> Iterator[Path]:
        with make() as folder:
            folders.append(folder)
            yield folder

    monkeypatch.setattr(launch, "job_folder", noted)
    with tempfile.TemporaryDirectory(prefix="rw", ignore_cleanup_errors=True) as sessions:
        monkeypatch.setenv("TMPDIR", sessions)
        yield
        assert not [folder for folder in folders if folder.exists()]
        assert not [process for folder in folders for process in processes(str(folder))]
        assert not list(Path(sessions).iterdir())


@functools.cache
def campaign() -> list[AlgorithmCase]:
    return real_ranks.chosen((2, 3, 4), ("ragged", "bytes"))


def seeded(
    count: int, group_sizes: tuple[int, ...], sizes: tuple[str, ...] = ("ragged", "bytes")
) -> list[AlgorithmCase]:
    """Some cases of every algorithm."""
    chance, found = random.Random(11), []
    every: dict[str, list[AlgorithmCase]] = {}
    for case in campaign():
        if case.p not in group_sizes or case.size not in sizes:
            continue
        every.setdefault(case.slug, []).append(case)
    for cases in every.values():
        found += chance.sample(cases, min(count, len(cases)))
    return found


def verify(name: str, cases: list[AlgorithmCase]) -> list[real_ranks.Result]:
    found = list(real_ranks.verify(executor(name), cases))
    assert not [f"{each.case}: {each.wrong}" for each in found if each.wrong]
    assert len(found) == len(cases)
    ran = [each for each in found if not each.declined]
    assert len(ran) > len(cases) * 0.8, "most of the cases were declined"
    return ran


@pytest.mark.parametrize(("name", "part"), [*zip(PLAIN, range(2), strict=True)])
def test_some_of_every_algorithm(name: str, part: int) -> None:
    """One case of each, every second one by either way; scripts/real-ranks has them all."""
    ran = verify(name, seeded(1, (2, 3, 4))[part::2])
    assert len({each.case.slug for each in ran}) >= 20


@pytest.mark.sampled(1, "name")
@pytest.mark.parametrize("name", PLAIN)
def test_nodes_behind_the_ranks(name: str) -> None:
    cases = [
        case
        for slug in ("nvls", "nvls-tree", "collnet-direct", "collnet-chain", "nvls-collnet")
        for case in real_ranks.chosen((4,), ("ragged",), slugs=[slug])
    ]
    assert any((made := real_ranks.program(case)) and made.aggregators for case in cases)
    verify(name, cases)


@pytest.mark.parametrize(
    ("name", "p", "part"),
    [
        pytest.param("openmpi", 4, 0, marks=mpi),
        pytest.param("mpich", 2, 1, marks=mpi),
        pytest.param("gloo", 3, 2, marks=torch),
        pytest.param("gloo-batched", 2, 3, marks=torch),
    ],
)
def test_some_of_every_algorithm_with_a_library(name: str, p: int, part: int) -> None:
    """Four libraries share the algorithms, those that have no nodes behind the ranks: one start; scripts/real-ranks has all."""
    drawn = seeded(1, (p,))[part::4]
    cases = [case for case in drawn if (made := real_ranks.program(case)) and made.n_nodes == p]
    found = list(real_ranks.verify(executor(name), cases))
    assert not [f"{each.case}: {each.wrong}" for each in found if each.wrong]
    assert sum(not each.declined for each in found) >= 7


# ----------------------------------------------------------------------------------------- element types, cuts and groups
def exact(name: str, programs: list[Program], **how: Any) -> None:
    for program, found in zip(programs, batch.run_all(executor(name), programs, seed=5, **how), strict=True):
        if how.get("reals"):
            assert check.within_order(program, found, seed=5) is None, program.collective
        else:
            assert check.against_interpreter(program, found, seed=5) is None, program.collective
            assert not any(each.wrong for each in found), program.collective


def all_reduces(p: int, dtypes: tuple[str, ...], reduce_ops: tuple[str, ...]) -> list[Program]:
    slugs, found = ("ring", "recursive-doubling", "binomial"), []
    for number, (dtype, reduce_op) in enumerate((d, r) for d in dtypes for r in reduce_ops):
        collective = Collective("all-reduce", range(p), 1021 * STORED_BYTES[dtype], dtype, reduce_op)
        found.append(find(slugs[number % 3]).load()(collective, fabric(f"switch:{p}")))
    return found


@pytest.mark.parametrize("name", PLAIN)
def test_every_element_type_and_reduction(name: str) -> None:
    exact(name, all_reduces(3, tuple(STORED), REDUCE_OPS))


@pytest.mark.parametrize("name", FASTER)
def test_reals_are_within_what_the_order_allows(name: str) -> None:
    exact(name, all_reduces(3, ("float64", "float32", "float16", "bfloat16"), ("sum", "avg", "max")), reals=True)


@pytest.mark.sampled(0, "*")  # the same additions behind other wires: above; this wire: some of every algorithm
@pytest.mark.parametrize("name", GLOO)
def test_reals_are_within_what_the_order_allows_over_gloo(name: str) -> None:
    test_reals_are_within_what_the_order_allows(name)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks")
def test_pytorchs_own_additions() -> None:
    kinds = ("float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
    exact("gloo-batched", all_reduces(2, kinds, REDUCE_OPS))
    with pytest.raises(InfeasibleError, match="PyTorch does not add float8"):
        exact("gloo-batched", all_reduces(2, ("float8",), ("sum",)))


def uneven(p: int) -> list[Program]:
    """V-forms with empty parts, permuted groups, parts of a machine."""
    chance, found = random.Random(3), []
    group = tuple(chance.sample(range(2 * p), p))
    machine = fabric(f"switch:{2 * p}")
    for slug in ("ring", "direct", "bruck", "linear", "pairwise", "chain"):
        system = find(slug)
        for op in system.ops:
            counts: Any = tuple(8 * chance.randrange(0, 60, 20) for _ in range(p)) if op in PER_RANK else None
            size = sum(counts) if counts else 0 if op == "barrier" else 808
            if op == "all-to-all":
                counts = tuple(tuple(8 * chance.randrange(0, 60, 20) for _ in range(p)) for _ in range(p))
            root = p - 1 if op in ROOTED else 0
            for cut in {counts, None}:
                try:
                    found.append(system.load()(Collective(op, group, size, root=root, counts=cut), machine))
                except UsageError:
                    continue
    return found


@pytest.mark.parametrize("name", FASTER)
def test_uneven_cuts_and_parts_of_a_machine(name: str) -> None:
    programs = uneven(3)
    assert sum(program.collective.counts is not None for program in programs) >= 3
    exact(name, programs)


@pytest.mark.sampled(
    0, "*"
)  # the same plans behind other wires: above; ragged sizes on this wire: some of every algorithm
@pytest.mark.parametrize("name", GLOO)
def test_uneven_cuts_and_parts_of_a_machine_over_gloo(name: str) -> None:
    test_uneven_cuts_and_parts_of_a_machine(name)


@pytest.mark.parametrize("name", EVERY[2:])
def test_the_librarys_own_collectives(name: str) -> None:
    """Every collective and element type, three times on the same buffers; what is only moved is never declined."""
    asked = [
        Collective(op, range(3), 12 * STORED_BYTES[dtype] * (op != "barrier"), dtype, reduce_op, 2 * (op in ROOTED))
        for op, dtype, reduce_op in itertools.product(OPS, STORED, ("sum", "avg", "max"))
        if reduce_op == "sum" or (op in REDUCING and not (op in PREFIXES and reduce_op == "avg"))
    ]
    cases = [job.Contest(job.AskedCollective.of(each), [job.Contender("native")], rounds=2) for each in asked]
    whole = job.RankJob(3, ["127.0.0.1"] * 3, cases, executor(name).backend, 10.0)
    with launch.job_folder() as folder:
        launch.lay_out(folder, whole, [])
        answers = launch.run(folder, whole, executor(name).starts(folder, 3), limit_s=HANG_S)
    for collective, *found in zip(asked, *answers, strict=True):
        assert not any(each.wrong for each in found), collective
        if not collective.reduces and collective.op != "send-recv":
            assert not any(each.declined for each in found), collective
    assert sum(not each.declined for each in answers[0]) > len(asked) // 2


# ------------------------------------------------------------------------------------------------------------- wrong plans
Change = Callable[[NodePlan], dict[str, Any]]


def wrongly(change: Change, node: int = 1) -> Callable[[Program], list[NodePlan]]:
    def made(program: Program) -> list[NodePlan]:
        found = plans(program)
        assert plans(program) == found
        found[node] = msgspec.structs.replace(found[node], **change(found[node]))
        return found

    return made


def first_run(plan: NodePlan, adding: bool, **fields: Any) -> list[Any]:
    """The receives with the first run that adds (or does not) changed."""
    where = next(n for n, each in enumerate(plan.receives) if each.runs and each.runs[0].adds is adding)
    message = plan.receives[where]
    run: Extent = msgspec.structs.replace(message.runs[0], **fields)
    changed = msgspec.structs.replace(message, runs=[run, *message.runs[1:]])
    return [*plan.receives[:where], changed, *plan.receives[where + 1 :]]


def copied(plan: NodePlan) -> dict[str, Any]:
    return {"receives": first_run(plan, True, adds=False)}


def shifted(plan: NodePlan) -> dict[str, Any]:
    where = next(each.runs[0] for each in plan.receives if each.runs and not each.runs[0].adds)
    by = 64 if where.at == 0 else -64
    return {"receives": first_run(plan, False, at=where.at + by)}


def swapped(plan: NodePlan) -> dict[str, Any]:
    """The places of the first two messages that it receives are mixed up."""
    one, other = plan.receives[:2]
    mixed = [
        msgspec.structs.replace(mine, runs=[msgspec.structs.replace(mine.runs[0], at=theirs.runs[0].at)])
        for mine, theirs in ((one, other), (other, one))
    ]
    return {"receives": [*mixed, *plan.receives[2:]]}


def dropped(plan: NodePlan) -> dict[str, Any]:
    """The last message is never sent."""
    last = len(plan.sends) - 1
    return {"order": [each for each in plan.order if each not in [(Do.SEND, last), (Do.SENT, last)]]}


@pytest.mark.parametrize("name", FASTER)
def test_a_wrong_step_is_found(name: str) -> None:
    """Each change twice, in one start of the ranks."""
    program = ring(Collective("all-reduce", range(4), 4 * 1024))
    wrong_plans = iter([wrongly(change)(program) for change in (copied, shifted, swapped) for _ in range(2)])
    answers = batch.run_all(executor(name), [program] * 6, cut=lambda _: next(wrong_plans), timeout_s=10)
    assert len(answers) == 6
    for found in answers:
        difference = check.against_interpreter(program, found)
        assert difference is not None
        assert "elements differ; first: rank" in str(difference)
        assert sum(each.wrong for each in found) == difference.wrong


@pytest.mark.sampled(0, "*")  # found by the same comparison, whatever the wire: above
@pytest.mark.parametrize("name", GLOO)
def test_a_wrong_step_is_found_over_gloo(name: str) -> None:
    test_a_wrong_step_is_found(name)


@pytest.mark.parametrize("name", EVERY)
def test_a_lost_message_is_named(name: str) -> None:
    program = ring(Collective("all-reduce", range(3), 3 * 1024))
    with pytest.raises(InfeasibleError) as raised:
        batch.run_all(executor(name), [program], cut=wrongly(dropped), timeout_s=2.0)
    said = raised.value.what.splitlines()
    step = plans(program)[1].sends[-1].step
    waits = next(line for line in said if line.startswith("rank 2 "))
    assert waits.startswith(f"rank 2 receives from rank 1 (step {step}, chunk ")
    assert raised.value.where.startswith(f"ring, all-reduce of 3072 B over 3 ranks, step {step}, chunk ")


class LateExecutor(Executor):
    """The last rank's process begins five seconds after the others."""

    def starts(self, folder: Path, n: int, *given: Any, **named: Any) -> list[launch.Start]:
        *first, last = super().starts(folder, n, *given, **named)
        return [*first, replace(last, argv=("sh", "-c", 'sleep 5; exec "$@"', "sh", *last.argv))]


def test_a_rank_that_starts_late_is_waited_for() -> None:
    """Longer than for a message: a machine with other work starts ranks one after the other."""
    program = ring(Collective("all-reduce", range(3), 3 * 1024))
    (answers,) = batch.run_all(LateExecutor("late", "memory"), [program], timeout_s=0.5)
    assert batch.wrong(program, answers) == ""


def test_a_rank_that_ends_waits_until_the_others_have_said_where_they_stand(tmp_path: Path) -> None:
    """Under mpirun they are killed as soon as one has ended."""
    (tmp_path / "status-0").touch()
    (tmp_path / "answer-2").touch()

    def late() -> None:
        while not (tmp_path / "stop").exists():
            time.sleep(0.01)
        time.sleep(0.05)
        (tmp_path / "status-1").touch()

    other = threading.Thread(target=late)
    other.start()
    let_others_say(tmp_path, 3, 600.0)
    assert (tmp_path / "status-1").exists()
    other.join()


# ----------------------------------------------------------------------------------------------------- ranks that go away
class Meddler(threading.Thread):
    """Sends a signal to one rank of the one job that begins now, as soon as it is at its gate."""

    def __init__(self, rank: int, number: signal.Signals) -> None:
        super().__init__(daemon=True)
        self.rank, self.number, self.hit = rank, number, -1

    def run(self) -> None:
        until_s = time.monotonic() + HANG_S
        while self.hit < 0 and time.monotonic() < until_s:
            for process in processes("ringwright.execute.rank"):
                if self._is_it(process):
                    os.kill(process, self.number)
                    self.hit = process
                    return
            time.sleep(0.005)

    def _is_it(self, process: int) -> bool:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            return False
        return parent == os.getpid() and words[-2] == str(self.rank).encode()


def busy() -> list[Program]:
    """Takes long enough to be disturbed."""
    return [ring(Collective("all-reduce", range(4), 1 << 20))] * 100


@pytest.mark.parametrize("name", PLAIN)
def test_a_killed_rank_is_named(name: str) -> None:
    meddler = Meddler(2, signal.SIGKILL)
    meddler.start()
    began_s = time.monotonic()
    with pytest.raises(InfeasibleError) as raised:
        batch.run_all(executor(name), busy(), timeout_s=HANG_S)
    assert meddler.hit > 0
    assert "rank 2 was killed by signal 9" in raised.value.what
    assert time.monotonic() - began_s < HANG_S / 2, "nobody should wait for a dead rank"


@pytest.mark.parametrize("name", PLAIN)
def test_a_stopped_rank_is_named(name: str) -> None:
    meddler = Meddler(1, signal.SIGSTOP)
    meddler.start()
    with pytest.raises(InfeasibleError) as raised:
        batch.run_all(executor(name), busy(), timeout_s=6)
    assert meddler.hit > 0
    assert "rank 1 does not answer" in raised.value.what
    assert not any(f"rank {other} does not answer" in raised.value.what for other in (0, 2, 3))


def broken(plan: NodePlan) -> dict[str, Any]:
    """A run that lies outside of the memory."""
    last = plan.receives[-1]
    run = msgspec.structs.replace(last.runs[0], at=plan.arena_bytes, adds=True)
    return {"receives": [*plan.receives[:-1], msgspec.structs.replace(last, runs=[run])]}


@pytest.mark.parametrize("name", EVERY)
def test_a_rank_that_raises_is_named(name: str) -> None:
    program = ring(Collective("all-reduce", range(3), 3 << 12))
    began_s = time.monotonic()
    with pytest.raises(InfeasibleError) as raised:
        batch.run_all(executor(name), [program], cut=wrongly(broken), timeout_s=HANG_S)
    assert any(line.startswith("rank 1 failed: ") for line in raised.value.what.splitlines())
    assert not any(f"rank {other} failed" in raised.value.what for other in (0, 2))
    assert time.monotonic() - began_s < HANG_S / 2, "the others are told at once"


def test_a_rank_that_cannot_begin_shows_its_last_words() -> None:
    """Its wire is unknown to its backend: no status but an error, which must be seen."""
    program = ring(Collective("all-reduce", range(2), 64))
    with pytest.raises(InfeasibleError, match="'carrier-pigeon' needs ranks that were started by its library"):
        batch.run_all(Executor("x", "carrier-pigeon"), [program], timeout_s=5)


# ---------------------------------------------------------------------------------------------------------------- sockets
def crossing(p: int, turns: int, size: int) -> list[NodePlan]:
    """Everyone sends everyone ``turns`` messages, all posted before any is taken."""
    found = []
    for node in range(p):
        peers = [peer for peer in range(p) if peer != node]
        sends, receives, order = [], [], []
        for turn in range(turns):
            for place, peer in enumerate(peers):
                out = [turn, turn, peer, turn, 0, [Extent((turn * p + peer) * size, 0, size, False, True)]]
                into = [turn, turn, peer, turn, 0, [Extent((turns * p + turn * p + peer) * size, 0, size, False, True)]]
                sends.append(out)
                receives.append(into)
                order += [(Do.RECV, turn * len(peers) + place), (Do.SEND, turn * len(peers) + place)]
        order += [(Do.TAKE, n) for n in range(len(receives))] + [(Do.SENT, n) for n in range(len(sends))]
        total = 2 * turns * p * size
        made = ["crossing", node, p, total, [total] * p, [(int(a), b) for a, b in order], sends, receives, [], [], []]
        fields = dict(zip(NodePlan.__struct_fields__, made, strict=True))
        found.append(msgspec.convert(msgspec.to_builtins(fields), NodePlan))
    return found


def through_small_buffers(wire: Sockets, plan: NodePlan, turns: int, size: int) -> list[tuple[int, int]]:
    """Run a crossing twice and return (peer, turn) of what came wrong."""
    p, me = plan.nodes, plan.node
    peers = [peer for peer in range(p) if peer != me]
    for peer, which in itertools.product(peers, (socket.SO_SNDBUF, socket.SO_RCVBUF)):
        wire.link(peer).connection.setsockopt(socket.SOL_SOCKET, which, 32768)
    collective = Collective("all-gather", range(p), 4 * p)
    ready = Pushed(plan, ordinary(plan.arena_bytes, collective), wire, 1024)
    blocks = ready.arena.raw.reshape(2, turns, p, size)
    turn_of, peer_of = np.mgrid[0:turns, 0:p]
    blocks[0] = ((turn_of + 3 * peer_of + 7 * me) % 251)[..., None]
    wanted = ((turn_of + 3 * me + 7 * peer_of) % 251)[..., None]
    wrong: list[tuple[int, int]] = []
    for _ in range(2):
        blocks[1] = 255
        ready.begin()
        for action in ready.code:
            action()
        ready.finish()
        good = (blocks[1] == wanted).all(axis=2)
        wrong += [(peer, turn) for peer in peers for turn in range(turns) if not good[turn, peer]]
    return wrong


def test_many_messages_through_small_kernel_buffers(tmp_path: Path) -> None:
    """100 messages a pair and way, far more than the kernel takes: who waits to send must receive meanwhile."""
    wrong: dict[int, list[tuple[int, int]]] = {}

    def rank(plan: NodePlan) -> None:
        wire = Sockets(tmp_path, plan.node, plan.nodes, "127.0.0.1")
        wrong[plan.node] = through_small_buffers(wire, plan, 100, 4000)
        wire.close()

    threads = [threading.Thread(target=rank, args=(plan,), daemon=True) for plan in crossing(4, 100, 4000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert wrong == {node: [] for node in range(4)}, "a rank waits for ever, or got something else"


# -------------------------------------------------------------------------------------------------------------- by itself
def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="no executor 'pigeons'") as raised:
        executor("pigeons")
    assert all(name in raised.value.remedy for name in EXECUTORS)


def test_what_is_missing_is_said() -> None:
    assert executor("memory").missing() == executor("sockets").missing() == ""
    assert bool(executor("gloo").missing()) == NO_TORCH
    assert bool(executor("openmpi").missing()) == NO_MPI


def test_a_job_folder_goes_with_its_job() -> None:
    with launch.job_folder() as folder:
        assert folder.is_dir()
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


def test_a_wrong_byte_is_one_wrong_element() -> None:
    one = np.array([1, 2, 3])
    assert data.wrong(one, np.array([1, 9, 3])) == 1
    assert data.wrong(one, np.array([1])) == 3
