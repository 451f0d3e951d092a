"""The NCCL tuner plug-in: a stand-in for NCCL loads it and asks, and it answers as the table in Python does."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from patience import HANG_S
from ringwright.capture.nccl_tuner import TUNER_FILE_NAME, build_tuner, tuner_environment
from ringwright.cli import main
from ringwright.costs.nccl import ALGORITHMS, OPS, PROTOCOLS, choose, named_system, sweep
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule, first_match, rules_from_choices
from ringwright.formats.settings.nccl_tuner_csv import nccl_tuner_csv
from ringwright.ground.errors import UsageError

HERE = Path(__file__).resolve().parents[1]
SOURCE = HERE.parent / "src" / "ringwright" / "capture" / "nccl_tuner"
STRICT = ("-Wall", "-Wextra", "-Werror")
UNTOUCHED, NOT_SAID = -7, -2
CALL = np.dtype([("bytes", "u8"), ("op", "i4"), ("pipelined", "i4"), ("registered", "i4"), ("available", "i4")])
ANSWER = np.dtype([("algorithm", "i4"), ("protocol", "i4"), ("channels", "i4"), ("strange", "i4")])

pytestmark = [pytest.mark.once, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuner")
    build_tuner(folder, flags=STRICT)
    compile_host(folder)
    return folder


def compile_host(folder: Path, *flags: str) -> None:
    command = ["cc", "-std=c11", "-O1", *STRICT, f"-I{SOURCE}", *flags, str(HERE / "tuner_host.c")]
    subprocess.run([*command, "-o", str(folder / "host"), "-ldl"], check=True)


def drive(tools: Path, table: Path | str, version: int, nodes: int, ranks: int, *more: str) -> tuple[str, str]:
    """Return what the stand-in printed and what the plug-in said in NCCL's log."""
    command = [str(tools / "host"), str(tools / TUNER_FILE_NAME), str(version), str(nodes), str(ranks), *more]
    done = subprocess.run(
        command,
        env={**os.environ, "NCCL_TUNER_CONFIG_FILE": str(table)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


def drawn_rules(draw: random.Random, count: int) -> list[TunerRule]:
    """Return rules that overlap, touch, and ask for other communicators and groups of calls too."""
    ends = [0, BYTES_MAX, *(draw.randrange(1 << draw.randrange(1, 40)) for _ in range(12))]
    rules = []
    for _ in range(count):
        low, high = sorted(draw.choices(ends, k=2))
        asked = draw.choice([ANY, ANY, 2, 4]), draw.choice([ANY, ANY, 16, 8]), draw.choice([ANY, ANY, 1, 3])
        rule = draw.choice(OPS), low, high, draw.choice(ALGORITHMS), draw.choice(PROTOCOLS), draw.randrange(1, 65)
        rules.append(TunerRule(*rule, *asked, draw.choice([ANY, ANY, 0, 1])))
    return rules


def drawn_calls(draw: random.Random, rules: list[TunerRule], count: int) -> np.ndarray:
    """Return calls of any size, many of them at the ends of the rules; most pairs can be used."""
    numbers = np.random.default_rng(draw.randrange(1 << 30))
    ends = np.array([end for rule in rules for end in (rule.min_bytes, rule.max_bytes)], dtype="i8")
    near = np.clip(numbers.choice(ends, count).astype("f8"), 0, 2.0**62).astype("i8") + numbers.integers(-1, 2, count)
    far = 2 ** numbers.integers(0, 40, count) + numbers.integers(0, 1000, count)
    calls = np.zeros(count, CALL)
    calls["bytes"] = np.maximum(np.where(numbers.random(count) < 0.5, near, far), 0)
    calls["op"] = numbers.integers(0, len(OPS), count)
    calls["pipelined"] = numbers.integers(1, 5, count)
    calls["registered"] = numbers.integers(0, 2, count)
    masks = np.array([draw.getrandbits(21) | draw.getrandbits(21) for _ in range(16)], "i4")
    calls["available"] = numbers.choice(masks, count)
    return calls


def answers(tools: Path, folder: Path, rules: list[TunerRule], calls: np.ndarray, version: int) -> np.ndarray:
    (folder / "tuner.csv").write_bytes(nccl_tuner_csv(rules))
    calls.tofile(folder / "calls")
    out, told = drive(tools, folder / "tuner.csv", version, 2, 16, str(folder / "calls"), str(folder / "answers"))
    assert out == "Ringwright follows\n"
    assert told == f"3 TUNER/Ringwright: {folder / 'tuner.csv'}: the first row that holds decides\n"
    return np.fromfile(folder / "answers", ANSWER)


def expected(rules: list[TunerRule], calls: np.ndarray, version: int) -> list[tuple[int, int, int, int]]:
    """Return what the table in Python says of each call, of the interfaces that do not say all as they say it."""
    usable = {
        int(mask): {
            (algorithm, protocol)
            for (a, algorithm), (p, protocol) in product(enumerate(ALGORITHMS), enumerate(PROTOCOLS))
            if is_usable(int(mask), a, p, version)
        }
        for mask in np.unique(calls["available"])
    }
    made = []
    for size, op, pipelined, registered, mask in calls.tolist():
        pairs = usable[mask]
        rule = first_match(
            rules,
            OPS[op],
            size,
            nodes=2,
            ranks=16,
            pipelined=pipelined,
            registered=registered if version > 3 else NOT_SAID,
            available=lambda algorithm, protocol, pairs=pairs: (algorithm, protocol) in pairs,
        )
        made.append(
            (UNTOUCHED, UNTOUCHED, UNTOUCHED, 0)
            if rule is None
            else (ALGORITHMS.index(rule.algorithm), PROTOCOLS.index(rule.protocol), rule.channels, 0)
        )
    return made


def is_usable(mask: int, algorithm: int, protocol: int, version: int) -> bool:
    if version > 2:
        return bool(mask >> (algorithm * 3 + protocol) & 1)
    switches = {2: 6, 3: 6, 4: 12, 5: 12}  # of CollNet and of NVLS
    return ALGORITHMS[algorithm] != "pat" and bool(mask >> switches[algorithm] & 1 if algorithm in switches else 1)


@pytest.mark.parametrize(("version", "tables"), [(2, 1), (3, 1), (4, 1), (5, 10), (6, 1), (7, 1)])
def test_random_calls_answer_as_the_table_in_python(tools: Path, tmp_path: Path, version: int, tables: int) -> None:
    """In all 150,000 calls, of v5 the 100,000 that are asked for."""
    draw = random.Random(version)
    for count in [40, *(draw.randrange(1, 60) for _ in range(tables - 1))]:
        rules = drawn_rules(draw, count)
        calls = drawn_calls(draw, rules, 10_000)
        got = answers(tools, tmp_path, rules, calls, version)
        assert got.tolist() == expected(rules, calls, version)


def test_a_sweep_is_followed_from_the_file_that_export_writes(tools: Path, tmp_path: Path) -> None:
    system = named_system("dgx-h100", 2)
    rules = rules_from_choices([*sweep("all-reduce", [1 << power for power in range(3, 31)], system, "2.21.5")])
    calls = np.zeros(28, CALL)
    calls["bytes"], calls["op"], calls["available"] = 1 << np.arange(3, 31), OPS.index("all-reduce"), (1 << 21) - 1
    got = answers(tools, tmp_path, rules, calls, 5)
    for size, (algorithm, protocol, channels, strange) in zip(calls["bytes"].tolist(), got.tolist(), strict=True):
        choice = choose("all-reduce", size, system, "2.21.5")
        assert (ALGORITHMS[algorithm], PROTOCOLS[protocol], channels, strange) == (
            choice.algorithm,
            choice.protocol,
            choice.channels,
            0,
        )


def test_channels_that_are_left_open_stay_as_nccl_has_them(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("# a table\n\n  allreduce , 0 , 99999999999999999999 , tree , ll , -1 , -1 , -1\r\n")
    calls = np.zeros(1, CALL)
    calls["bytes"], calls["op"], calls["available"] = 1 << 62, 4, 1
    calls.tofile(tmp_path / "calls")
    drive(tools, tmp_path / "t", 5, 1, 8, str(tmp_path / "calls"), str(tmp_path / "answers"))
    assert np.fromfile(tmp_path / "answers", ANSWER).tolist() == [(0, 0, UNTOUCHED, 0)]


def test_the_benchmark_says_what_a_call_costs() -> None:
    script = HERE.parent / "benchmarks" / "bench_tuner.py"
    asked = ["--calls", "100", "--rounds", "1", "--most-rows", "100", "--json"]
    done = subprocess.run([sys.executable, str(script), *asked], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["5 ranges"]["rows"] == 25


# --------------------------------------------------------------------------------------------------------- what is refused
GOOD = "allreduce,0,100,ring,ll,4,-1,-1,-1,-1\n"
HOSTILE = {
    "a collective": (GOOD + GOOD.replace("allreduce", "AllReduce"), 2, "an unknown collective"),
    "an algorithm": (GOOD.replace("ring", "bine"), 1, "an unknown algorithm"),
    "a protocol": (GOOD.replace(",ll,", ",LL,"), 1, "an unknown protocol"),
    "few fields": ("# x\n" + GOOD + "allreduce,0,100\n", 3, "8 to 10 fields"),
    "many fields": (GOOD.strip() + ",1\n", 1, "8 to 10 fields"),
    "commas": ("," * 5000 + "\n", 1, "longer than 255"),
    "a long line": (GOOD.strip() + " " * 300 + "\n", 1, "longer than 255"),
    "a cut line": (GOOD + GOOD[:-1], 2, "no end"),
    "a zero": (GOOD + "all\0reduce" + GOOD[9:], 2, "a zero byte"),
    "zeros": ("\0" * 40 + "\n", 1, "a zero byte"),
    "a large count": (GOOD.replace(",4,", ",65,"), 1, "channels"),
    "no channel": (GOOD.replace(",4,", ",0,"), 1, "channels"),
    "a huge count": (GOOD.replace(",4,", "," + "9" * 20 + ","), 1, "channels"),
    "a huge rank": (GOOD.replace(",4,-1,-1", ",4,-1,18446744073709551617"), 1, "a condition"),
    "a negative rank": (GOOD.replace(",4,-1,-1", ",4,-1,-2"), 1, "a condition"),
    "a third of registered": (GOOD.replace(",-1\n", ",2\n"), 1, "a condition"),
    "a negative size": (GOOD.replace(",0,", ",-1,"), 1, "a size"),
    "a long size": (GOOD.replace(",100,", "," + "1" * 30 + ","), 1, "a size"),
    "a fraction": (GOOD.replace(",100,", ",1e3,"), 1, "a size"),
    "an empty size": (GOOD.replace(",100,", ",,"), 1, "a size"),
    "turned round": (GOOD.replace(",0,100,", ",100,0,"), 1, "ends before it begins"),
    "a large file": (GOOD * 120_000, 0, "larger than 4 MiB"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_table_is_refused_with_its_line_and_changes_nothing(tools: Path, tmp_path: Path, name: str) -> None:
    text, line, why = HOSTILE[name]
    (tmp_path / "t").write_text(text, newline="")
    calls = np.zeros(5, CALL)
    calls["op"], calls["available"] = np.arange(5), (1 << 21) - 1
    calls.tofile(tmp_path / "calls")
    out, told = drive(tools, tmp_path / "t", 6, 1, 8, str(tmp_path / "calls"), str(tmp_path / "answers"))
    assert out == "Ringwright changes nothing\n"
    assert told.count("\n") == 1  # two communicators, one line
    assert told.startswith(f"2 TUNER/Ringwright: {tmp_path / 't'}:{line}: ")
    assert why in told
    assert told.endswith("; nothing is changed\n")
    assert set(np.fromfile(tmp_path / "answers", ANSWER).tolist()) == {(UNTOUCHED, UNTOUCHED, UNTOUCHED, 0)}


def test_no_table_a_folder_a_pipe_and_an_empty_file_change_nothing(tools: Path, tmp_path: Path) -> None:
    assert drive(tools, "", 5, 1, 8)[1].startswith("3 TUNER/Ringwright: no table: NCCL_TUNER_CONFIG_FILE is not set")
    assert "No such file" in drive(tools, tmp_path / "none", 5, 1, 8)[1]
    assert "no plain file" in drive(tools, tmp_path, 5, 1, 8)[1]
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in drive(tools, tmp_path / "pipe", 5, 1, 8)[1]
    (tmp_path / "empty").touch()
    calls = np.zeros(7, CALL)
    calls["op"] = np.arange(-1, 6)
    calls.tofile(tmp_path / "calls")
    drive(tools, tmp_path / "empty", 2, 1, 8, str(tmp_path / "calls"), str(tmp_path / "answers"))
    assert set(np.fromfile(tmp_path / "answers", ANSWER)["algorithm"].tolist()) == {UNTOUCHED}


def test_the_verb_builds_it_and_prints_what_switches_it_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "t.so"
    assert main(["plugin", "build", "tuner", "-o", str(target)]) == 0
    assert "plugin env tuner" in capsys.readouterr().out
    assert main(["plugin", "env", "tuner", "-o", str(target), "--table", str(tmp_path / "a b.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"export NCCL_TUNER_PLUGIN={target}",
        f"export NCCL_TUNER_CONFIG_FILE='{tmp_path / 'a b.csv'}'",
    ]
    assert main(["plugin", "build", "tuner", "-o", str(target)]) == 2
    assert "add --force" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no C compiler"):
        build_tuner(tmp_path / "n.so", compiler="no-such-compiler")
    assert tuner_environment("p.so")["NCCL_TUNER_CONFIG_FILE"].endswith("/tuner.csv")
