"""Synthesis as a question: rows with proofs, files that are kept, budgets, and errors that say what to type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright import Collective
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.declared_order import Order
from ringwright.algorithms.synthesis.expand import expand
from ringwright.algorithms.synthesis.forest import forest
from ringwright.bounds.certificates import certificate, proved_s
from ringwright.bounds.lower_bounds import bounds
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.program import Affine, Op, Step, explicit
from ringwright.search import program_cache, study
from ringwright.search.proof import is_right, shrunk
from ringwright.search.question import SynthesisSpec, methods, searched

pytestmark = pytest.mark.once

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "gather", "scatter", "all-to-all", "scan")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path / "programs"))
    return tmp_path / "programs"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["dgx-a100:2", "torus:4x4", "leaf-spine:32", "mi250:1"])
def test_what_a_certificate_proves_is_the_bound(op: str, name: str) -> None:
    topology = fabric(name)
    collective = Collective(op, range(topology.n_ranks), 1 << 24)
    for bound in bounds(collective, topology):
        proved = proved_s(certificate(bound), collective, topology)
        assert proved is None or proved == pytest.approx(bound.time_s, rel=1e-6)
        assert proved is not None or bound.kind in ("rounds", "volume", "adding")


def test_a_certificate_of_other_nodes_proves_less() -> None:
    topology = fabric("dgx-a100:2")
    collective = Collective("all-gather", range(16), 1 << 30)
    proof = dict(certificate(bounds(collective, topology)[0]))
    (nodes,) = proof["nodes"]  # type: ignore[misc, attr-defined]
    proof["nodes"] = [nodes[:-1]]
    assert (proved_s(proof, collective, topology) or 0.0) < 0.99 * float(str(proof["time_us"])) / 1e6
    proof["nodes"] = [[10**6]]
    with pytest.raises(UsageError, match="names another one"):
        proved_s(proof, collective, topology)


def test_the_answer_holds_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("synthesise", "all-gather", "--fabric", "dgx-a100:2", "--size", "64M")
    told = answer(capsys, *asked)
    assert told["schema"] == "ringwright.synthesise/1"
    assert told.keys() >= {"rows", "ground"}
    row, *others = told["rows"]
    assert all(row["time_us"] <= other["time_us"] for other in others)
    wanted = "method size_bytes time_us bound_us gap certificate steps chunks trees height synthesis_s stopped verified"
    assert row.keys() >= set(wanted.split())
    assert row["gap"] == pytest.approx(row["time_us"] / row["bound_us"] - 1)
    assert row["verified"] is True
    assert row["stopped"] is row["kept"] is False
    collective = Collective("all-gather", range(16), 64 << 20)
    assert proved_s(row["certificate"], collective, fabric("dgx-a100:2")) == pytest.approx(row["bound_us"] / 1e6)
    assert any(rival["algorithm"] == "ring" and rival["ratio"] > 1 for rival in told["rivals"])
    again = answer(capsys, *asked, "--alone")["rows"][0]
    assert again["kept"] is True
    same = ("time_us", "bound_us", "steps", "chunks", "trees", "verified")
    assert [again[name] for name in same] == [row[name] for name in same]
    assert answer(capsys, *asked, "--alone", "--fresh")["rows"][0]["kept"] is False


def test_the_best_method_wins_its_region(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(
        capsys,
        "synthesise",
        "reduce-scatter",
        "--fabric",
        "torus:2x3",
        "-b",
        "64K",
        "-e",
        "4M",
        "-f",
        "64",
        "--method",
        "best",
    )
    assert {row["method"] for row in told["rows"]} >= {"forest"}
    times = {row["method"]: row["time_us"] for row in told["rows"] if row["size_bytes"] == 1 << 22}
    assert told["regions"][-1]["to_bytes"] == 1 << 22
    winner = told["regions"][-1]["algorithm"]
    assert times.get(winner, 0.0) <= min(times.values())


def test_the_text_names_the_cut_and_the_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synthesise", "all-gather", "--fabric", "dgx-a100:2", "--size", "16M", "--alpha", "busy"]) == 0
    text = capsys.readouterr().out
    assert "blocking links" in text
    assert "node0/gpu0, node0/nic0" in text
    assert "blueconnect" in text


def test_a_program_is_written_for_another_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "best.xml"
    words = [
        "synthesise",
        "all-gather",
        "--fabric",
        "ring:4",
        "--size",
        "1M",
        "--alone",
        "--to",
        "msccl-xml",
        "-o",
        str(file),
    ]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["verify", str(file)]) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--method", "nonsense"], 2, "no method of synthesis"),
        (["--method", "ring"], 2, "no method of synthesis"),
        (["--link-model", "soft"], 2, "no link model"),
        (["--to", "msccl-xml"], 2, "no file is named"),
    ],
)
def test_what_cannot_be_asked_is_said(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synthesise", "all-gather", "--fabric", "ring:4", "--size", "1M", "--alone", *words]) == code
    assert said in capsys.readouterr().err


def test_a_method_that_does_not_do_it_names_those_that_do() -> None:
    with pytest.raises(UsageError, match="forest does no all-to-all"):
        methods("all-to-all", "forest")


def test_a_damaged_file_counts_as_not_kept(folder: Path) -> None:
    question = SynthesisSpec("all-gather", fabric("ring:4"))
    first = searched(question, "forest", 1 << 20)
    (file,) = folder.iterdir()
    assert searched(question, "forest", 1 << 20).was_kept
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    again = searched(question, "forest", 1 << 20)
    assert not again.was_kept
    assert again.program.n_steps == first.program.n_steps


def test_another_fault_is_another_question() -> None:
    from ringwright.fabrics.faults import apply

    healthy = fabric("ring:4")
    slow = apply(healthy, ["link rank0>rank1 rate 50%"])
    collective = Collective("all-gather", range(4), 1 << 20)
    names = {program_cache.name_of(collective, each, "forest", {}, "1") for each in (healthy, slow)}
    names |= {
        program_cache.name_of(collective, healthy, "forest", knobs, version)
        for knobs, version in (({"seed": 1}, "1"), ({}, "2"))
    }
    assert len(names) == 4


def test_a_kept_program_is_the_program(folder: Path) -> None:
    collective, topology = Collective("all-reduce", range(6), 1 << 16), fabric("torus:2x3")
    for program in (forest(collective, topology), ring(collective, topology)):
        program_cache.keep("name", program)
        back = program_cache.kept("name", collective)
        assert back is not None
        assert folder.is_dir()
        assert back.cost == program.cost
        for one, other in zip(program.steps(), back.steps(), strict=True):
            for here, there in zip(one.blocks, other.blocks, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(here.arrays(), there.arrays(), strict=True))
        (folder / "name.npz").unlink()


def test_an_order_that_is_declared_is_kept(folder: Path) -> None:
    collective, topology = Collective("reduce-scatter", range(16), 1 << 20), fabric("mesh:4x4")
    program = expand(collective, topology, tries=8)
    assert isinstance(program.schedule, Order)
    program_cache.keep("name", program)
    back = program_cache.kept("name", collective)
    assert back is not None
    assert simulate(back, topology).time_ps == simulate(program, topology).time_ps
    assert simulate(replace(back, schedule=None), topology).time_ps > simulate(program, topology).time_ps


def test_an_order_that_leaves_data_out_or_locks_up_is_not_right() -> None:
    topology = fabric("mesh:4x4")
    program = expand(Collective("reduce-scatter", range(16), 1 << 20), topology, tries=8)
    order = program.schedule
    assert isinstance(order, Order)
    assert is_right(program, topology) is True
    late = Order(np.append(order.before, order.after[:1]), np.append(order.after, order.before[:1]), order.joins)
    absent = replace(order, after=order.after + (1 << 40))
    for wrong in (Order(order.before[1:], order.after[1:], order.joins), absent, late):
        assert is_right(replace(program, schedule=wrong), topology) is False


def test_a_wrong_program_is_not_verified() -> None:
    topology = fabric("ring:4")
    right = forest(Collective("all-gather", range(4), 1 << 30), topology)
    assert is_right(right, topology) is True
    small = shrunk(right)
    assert small is not None
    assert small.collective.size_bytes < 1 << 16
    *steps, last = right.steps()
    src, dst, chunk, to = last.blocks[0].arrays()
    cut = Step((explicit(Op.SEND, src[1:], dst[1:], chunk[1:], to[1:]), *last.blocks[1:]))
    assert is_right(replace(right, make_steps=lambda: [*steps, cut]), topology) is False


def test_regions_join_sizes_of_one_winner() -> None:
    rivals = [
        study.RivalRow(name, "block", size, time, None)
        for name, size, time in (("a", 1, 1.0), ("b", 1, 2.0), ("a", 2, 3.0))
    ]
    rivals.append(study.RivalRow("b", "block", 4, 1.0, None))
    assert study.regions([], rivals) == [
        {"algorithm": "a", "from_bytes": 1, "to_bytes": 2},
        {"algorithm": "b", "from_bytes": 4, "to_bytes": 4},
    ]


def numbers_of(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as opened:
        return dict(opened)


def in_told(told: np.ndarray, old: str, new: str) -> np.ndarray:
    text = told.tobytes().decode()
    assert old in text
    return np.frombuffer(text.replace(old, new, 1).encode(), np.uint8)


CHANGES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "a rank that is none": lambda numbers: numbers["src"].__setitem__(0, 99),
    "a slot below none": lambda numbers: numbers["chunk"].__setitem__(0, -1),
    "a legal rank, a wrong result": lambda numbers: numbers["dst"].__setitem__(0, (int(numbers["dst"][0]) + 2) % 4),
    "fractions": lambda numbers: numbers.update(src=numbers["src"] * 1.0),
    "half a list": lambda numbers: numbers.update(dst=numbers["dst"][:7]),
    "a column": lambda numbers: numbers.update(chunk=numbers["chunk"][:, None]),
    "bytes below none": lambda numbers: numbers["chunk_bytes"].__setitem__(0, -8),
    "no steps": lambda numbers: numbers.update(told=in_told(numbers["told"], '"steps":[{', '"steps":[],"x":[{')),
    "a later loop first": lambda numbers: numbers.update(told=in_told(numbers["told"], '"loop":0', '"loop":1')),
    "a shape of a word": lambda numbers: numbers.update(
        told=in_told(numbers["told"], '"blocks":[[0,[', '"blocks":[[0,["",')
    ),
    "another format": lambda numbers: numbers.update(told=in_told(numbers["told"], '"format":', '"format":9')),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_someone_changed_counts_as_not_kept(change: str, folder: Path) -> None:
    question = SynthesisSpec("all-gather", fabric("ring:4"))
    searched(question, "expand", 1 << 20)
    (file,) = folder.iterdir()
    numbers = {name: array.copy() for name, array in numbers_of(file).items()}
    CHANGES[change](numbers)
    np.savez(file, **numbers)  # type: ignore[arg-type]
    again = searched(question, "expand", 1 << 20)
    assert (again.was_kept, again.verified) == (False, True)
    assert searched(question, "expand", 1 << 20).was_kept


def test_a_program_of_another_question_is_not_taken(folder: Path) -> None:
    small, large = SynthesisSpec("all-gather", fabric("ring:4")), SynthesisSpec("all-gather", fabric("ring:6"))
    searched(small, "expand", 1 << 20)
    (file,) = folder.iterdir()
    searched(large, "expand", 1 << 20)
    (other,) = {*folder.iterdir()} - {file}
    other.write_bytes(file.read_bytes())
    assert not searched(large, "expand", 1 << 20).was_kept


@pytest.mark.parametrize("size", [0, 1, 3, 17])
def test_sizes_that_are_no_whole_elements_are_verified(size: int) -> None:
    topology = fabric("ring:4")
    assert is_right(forest(Collective("all-gather", range(4), size), topology), topology) is True


def test_what_only_the_language_does_is_asked_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "synthesise", "send-recv", "--fabric", "ring:4", "--size", "64K", "--alone")
    assert [(row["method"], row["verified"]) for row in told["rows"]] == [("gc3", True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--size", "1M", "-b", "4K"), "both say the size"),
        (("-o", "x.xml"), "nothing says what to write"),
        (("--budget", "0"), "nothing is searched in 0 s"),
        (("--method", "sccl:chunks=1,steps=2"), "a colon before each knob"),
    ],
)
def test_words_that_would_be_ignored_are_refused(words: tuple[str, ...], said: str, capsys: Any) -> None:
    assert main(["synthesise", "all-gather", "--fabric", "ring:4", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_method_named_twice_is_one() -> None:
    assert methods("all-gather", "forest,forest") == ["forest"]


DIGITS = st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 6), st.integers(-5, 5))


@given(st.lists(st.tuples(DIGITS, st.integers(1, 5)), max_size=3), st.integers(-20, 40), st.integers(1, 60))
def test_what_weights_say_of_a_pattern_holds_for_its_numbers(
    axes: list[tuple[tuple[int, int, int, int], int]], base: int, limit: int
) -> None:
    pattern, shape = Affine(tuple(digit for digit, _ in axes), base), tuple(length for _, length in axes)
    if program_cache._is_surely_within(pattern, shape, limit):
        numbers = pattern.values(shape)
        assert (numbers.min() >= 0, numbers.max() < limit) == (True, True)
    elif not axes:
        assert not 0 <= base < limit


def test_a_pattern_over_another_range_is_refused_however_small_its_numbers() -> None:
    assert not program_cache._is_surely_within(Affine(((1, 0, 2, 1),)), (2, 2), 9)
    assert not program_cache._is_surely_within(Affine(((1, 0, 0, 1),)), (2,), 9)
    assert not program_cache._is_surely_within(Affine(((1 << 40, 0, 2, 1),)), (2,), 9)
