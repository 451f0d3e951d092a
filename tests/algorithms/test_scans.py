"""Prefix sums, with the own contribution and without: what they mean, what is refused, how long they take, real ranks."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.libraries.mpich2 import mpich2
from ringwright.algorithms.libraries.open_mpi import open_mpi
from ringwright.bounds.lower_bounds import bounds
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.execute.mpi_runtime import available
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model import interpreter, registry
from ringwright.model.collective import Collective
from ringwright.model.program import Op, Step, explicit
from ringwright.model.validity import check
from ringwright_lab.contracts import algorithm as conformance

MIB = 1 << 20


def test_what_each_rank_holds_afterwards() -> None:
    given = [{0: np.array([rank + 1, 10 * rank])} for rank in range(4)]
    scan, before = (interpreter.expected(Collective(op, range(4), 16, "int64"), given) for op in ("scan", "exscan"))
    assert [each[0].tolist() for each in scan] == [[1, 0], [3, 10], [6, 30], [10, 60]]
    assert before[0] == {}  # MPI leaves it undefined
    assert [each[0].tolist() for each in before[1:]] == [[1, 0], [3, 10], [6, 30]]
    with pytest.raises(UsageError, match="scan has no average"):
        Collective("scan", range(4), 16, reduce_op="avg")


@pytest.mark.parametrize("op", ["scan", "exscan"])
@pytest.mark.parametrize("make", [linear, recursive_doubling])
def test_a_sum_that_is_another_ranks_is_found(op: str, make: object) -> None:
    """Legal as it is; with the step that reaches the last rank left out, or one more contribution, it is not."""
    program = make(Collective(op, range(5), 20))  # type: ignore[operator]
    assert not check(program)
    lacking = replace(program, make_steps=lambda: [*list(program.steps())[:-1], Step(())])
    assert any(each.rule == "result" and each.rank == 4 for each in check(lacking))
    into = 0 if op == "scan" and make is linear else 1
    more = [*program.steps(), Step((explicit(Op.REDUCE, 4, 1, 0, into),))]
    found = check(replace(program, make_steps=lambda: more, n_steps=program.n_steps + 1))
    assert any("has the contribution of rank 4" in each.message or each.rule == "double" for each in found)


@pytest.mark.parametrize("op", ["scan", "exscan"])
@pytest.mark.parametrize("p", [2, 5, 8, 13])
def test_rounds_and_bytes_are_those_of_the_closed_forms(op: str, p: int) -> None:
    down, doubled = (make(Collective(op, range(p), MIB)) for make in (linear, recursive_doubling))
    assert down.cost.messages == p - 1
    assert down.cost.sent_bytes == (p - 1) * MIB
    assert doubled.cost.messages == (p - 1).bit_length()
    top = fabric(f"switch:{p},rate=1GB/s,latency_s=0")
    for program in (down, doubled):
        assert simulate(program, top).time_s == pytest.approx(program.cost.messages * MIB / 1e9, rel=1e-6)
        assert simulate(program, top).time_s >= max(each.time_s for each in bounds(program.collective, top))


def test_nothing_crosses_towards_a_rank_before() -> None:
    """Down a line of ranks with one slow link backwards, the bound does not see it; one forwards, it does."""
    top = fabric("switch:4,rate=1GB/s,latency_s=0")
    back, on = top.rate.copy(), top.rate.copy()
    back[top.dst == 0] = 1e6  # nobody needs to send to rank 0
    on[top.src == 0] = 1e6
    asked = Collective("scan", range(4), MIB)
    plain, slow_back, slow_on = (
        bounds(asked, each)[0].time_s for each in (top, replace(top, rate=back), replace(top, rate=on))
    )
    assert plain == slow_back == pytest.approx(MIB / 1e9)
    assert slow_on == pytest.approx(MIB / 1e6)


def test_the_longest_way_is_one_that_a_scan_goes() -> None:
    top = fabric("switch:4,rate=1GB/s,latency_s=1us")
    slow = top.latency_s.copy()
    slow[top.dst == 0] = 1.0  # seconds, towards rank 0 alone
    found = {
        op: next(each for each in bounds(Collective(op, range(4), 0), replace(top, latency_s=slow, is_symmetric=False)))
        for op in ("scan", "all-reduce")
    }
    assert found["scan"].time_s < 1e-5
    assert found["all-reduce"].time_s > 1


def test_the_libraries_choose_as_their_tables_say() -> None:
    for op in ("scan", "exscan"):
        assert open_mpi(Collective(op, range(6), 64)).knobs["algorithm"] == "linear"
        assert open_mpi(Collective(op, range(6), 64), algorithm=2).cost.messages == 3
        assert mpich2(Collective(op, range(6), 64)).knobs["algorithm"] == "recursive_doubling"


@pytest.mark.parametrize("sizes", [[1, 1], [3], [2, 2], [3, 1, 4], [1, 5, 2, 2, 1], [8, 8]])
def test_mpich_scans_host_by_host(sizes: list[int]) -> None:
    """Where the ranks of a host follow each other, as its tests say: legal, right on data, and in as many rounds."""
    top = replace(fabric(f"switch:{sum(sizes)}"), hosts=np.repeat(np.arange(len(sizes)), sizes))
    asked = Collective("scan", range(sum(sizes)), 40, commutative=False)
    program = mpich2(asked, top)
    assert program.knobs["algorithm"] == "smp"
    assert not check(program)
    given = interpreter.inputs(asked, 3)
    found, wanted = interpreter.run(program, given), interpreter.expected(asked, given)
    assert all(np.array_equal(mine[0], want[0]) for mine, want in zip(found, wanted, strict=True))
    if sizes == [8, 8]:  # 3 inside, the total, 1 between leaders, to the next host, 3 inside: against 4
        assert program.cost.messages == 9


def test_the_systems_that_do_scans_conform() -> None:
    made = [registry.find(slug) for slug in ("linear", "recursive-doubling", "open-mpi", "mpich2")]
    cases = [case for case in conformance.pairwise(made, 3, (1, 2, 5)) if case.op in ("scan", "exscan")]
    assert len(cases) > 15
    assert [(str(case), failed) for case in cases if (failed := conformance.check(case).failed)] == []


def test_a_user_can_ask_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "exscan", "--fabric", "switch:6", "-b", "1M", "-e", "1M", "--algorithm"]
    assert main([*words, "linear,recursive-doubling,open-mpi,mpich2"]) == 0
    assert "simulated: exscan on switch:6" in capsys.readouterr().out
    assert main([*words, "ring"]) == 2
    assert main(["bound", "scan", "--fabric", "switch:6"]) == 0


def test_real_ranks_end_with_prefix_sums(capsys: pytest.CaptureFixture[str]) -> None:
    backends = ["ringwright"]
    if importlib.util.find_spec("mpi4py") is not None and "open-mpi" in available():
        backends.append("openmpi")
    words = ["--ranks", "3", "-b", "1K", "-e", "1K", "--iters", "1", "--warmup", "0", "--json"]
    for op in ("scan", "exscan"):
        assert main(["bench", op, "--backend", ",".join(backends), "--algorithm", "recursive-doubling", *words]) == 0
        out = capsys.readouterr().out
        assert out.count('"wrong"') >= len(backends)
        assert '"wrong": 0' in out
        assert all(f'"wrong": {count}' not in out for count in range(1, 10))
