"""Forests whose chunks are all of one size: runtimes that read files take them, and real processes run what comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.synthesis.forest import forest
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.execute import batch, check
from ringwright.execute.executors import executor
from ringwright.fabrics import fabric
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.sources.programs.msccl_xml import read_msccl_xml
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.model import validity

pytestmark = pytest.mark.once

MIB = 1 << 20
CASES = [
    ("mesh:3x3", "all-gather", 9 * MIB),
    ("torus:2x3", "all-reduce", 6 * MIB),
    ("dgx-a100:2", "reduce-scatter", 16 * MIB),
    ("dgx-1:1", "all-gather", 8 * MIB),
    ("torus:2x3", "broadcast", MIB),
]


@pytest.mark.sampled(2, "name", "size")
@pytest.mark.parametrize(("name", "op", "size"), CASES)
def test_chunks_are_equal_and_a_file_comes_back(name: str, op: str, size: int, tmp_path: Path) -> None:
    topology = fabric(name)
    program = forest(Collective(op, range(topology.n_ranks), size), topology, even=True)
    assert len(np.unique(program.layout.chunk_bytes)) == 1
    assert not validity.check(program, topology=topology)
    (tmp_path / "a.xml").write_bytes(msccl_xml(program))
    again = read_msccl_xml(tmp_path / "a.xml", size_bytes=size)
    assert again.collective.op == op
    assert not validity.check(again)
    fastest = forest(program.collective, topology)
    assert simulate(program, topology).time_ps <= 1.25 * simulate(fastest, topology).time_ps


def test_real_processes_run_what_comes_back(tmp_path: Path) -> None:
    programs = []
    for op in ("all-gather", "reduce-scatter", "all-reduce"):
        program = forest(Collective(op, range(3), 3 << 14), fabric("ring:3"), even=True)
        (tmp_path / f"{op}.xml").write_bytes(msccl_xml(program))
        programs += [program, read_msccl_xml(tmp_path / f"{op}.xml", size_bytes=3 << 14)]
    for program, nodes in zip(programs, batch.run_all(executor("memory"), programs, seed=3, timeout_s=60), strict=True):
        assert not any(each.wrong for each in nodes), program
        assert check.against_interpreter(program, nodes, seed=3) is None, program


def test_a_block_that_is_no_multiple_is_cut_as_far_as_it_is_one() -> None:
    """Seven elements a rank: nothing but whole blocks, or sevenths of them, are equal."""
    collective = Collective("all-gather", range(9), 9 * 7 * 4)
    program = forest(collective, fabric("mesh:3x3"), even=True)
    assert len(np.unique(program.layout.chunk_bytes)) == 1
    assert not validity.check(program, topology=fabric("mesh:3x3"))


def test_more_pieces_than_a_runtime_holds_have_no_windows() -> None:
    topology = fabric("mesh:3x3")
    program = forest(Collective("all-reduce", range(9), 9 * MIB), topology, even=True, pieces=32)
    assert program.schedule is None
    assert not validity.check(program, topology=topology)


def test_what_a_runtime_reads_is_written_in_place_of_what_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path / "programs"))
    words = ["synthesise", "all-gather", "--fabric", "torus:2x4", "--size", "32M", "--alone", "--to", "msccl-xml"]
    assert main([*words, "-o", str(tmp_path / "best.xml")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "forest at 32 MiB is faster, but forest cuts its data into unequal chunks" in said
    assert "what is written is forest:even=on's" in said
    assert not validity.check(read_program(tmp_path / "best.xml"))
