"""GOAL and Chakra: what is written is what the program does, byte for byte where others wrote the same."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from declared_programs import MSCCL
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.engines import events, flat
from ringwright.engines.machine import machine
from ringwright.formats.exports.chakra import chakra_collective, chakra_program
from ringwright.formats.exports.goal import goal, goal_binary
from ringwright.formats.exports.operations import CALC, RECV, SEND, operations
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.ground.errors import ProgramError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from shared_data import needs_shared_data, real
from small_fabrics import full

OPERATION = re.compile(r"l(\d+): (send|recv|calc) (\d+)(?:b (?:to|from) (\d+) tag (\d+))?")
KINDS = {"send": SEND, "recv": RECV, "calc": CALC}
Row = tuple[int, int, int, int]  # kind, amount, peer, tag


def parse_goal(text: str) -> list[tuple[list[Row], set[tuple[int, int]]]]:
    """Return per rank the operations and (later, earlier) pairs; labels must be defined before they are used."""
    ranks: list[tuple[list[Row], set[tuple[int, int]]]] = []
    lines = [line for line in text.splitlines() if line]
    assert lines[0].startswith("num_ranks ")
    for line in lines[1:]:
        if line.startswith("rank "):
            assert line == f"rank {len(ranks)} {{"
            ranks.append(([], set()))
        elif match := OPERATION.fullmatch(line):
            assert int(match[1]) == len(ranks[-1][0])
            ranks[-1][0].append((KINDS[match[2]], int(match[3]), int(match[4] or 0), int(match[5] or 0)))
        elif match := re.fullmatch(r"l(\d+) requires l(\d+)", line):
            assert max(int(match[1]), int(match[2])) < len(ranks[-1][0])
            ranks[-1][1].add((int(match[1]), int(match[2])))
        else:
            assert line == "}"
    assert int(lines[0].split()[1]) == len(ranks)
    return ranks


def parse_binary(data: bytes) -> list[tuple[list[Row], set[tuple[int, int]]]]:
    assert struct.unpack_from("<Q", data) == (4223,)
    data = data[8:]
    n, cpus, nics = struct.unpack_from("<IBB", data)
    assert (cpus, nics) == (0, 0)
    ranks = []
    for rank in range(n):
        begin, end = struct.unpack_from("<QQ", data, 6 + 16 * rank)
        nodes, roots = struct.unpack_from("<II", data, begin)
        found = set(struct.unpack_from(f"<{roots}I", data, begin + 8))
        at = begin + 8 + 4 * roots
        behind = at + 39 * nodes
        rows, pairs, waits = [], set(), defaultdict(int)
        for node in range(nodes):
            count, kind, peer, size, tag, _, _, follow, first, start_follow, _ = struct.unpack_from(
                "<IbIQIBBIIII", data, at + 39 * node
            )
            assert start_follow == 0
            assert (count == 0) == (node in found)
            rows.append((kind, size, peer, tag))
            for later in struct.unpack_from(f"<{follow}I", data, behind + 4 * first):
                pairs.add((later, node))
                waits[later] += 1
        assert end == behind + 4 * len(pairs)
        ranks.append((rows, pairs))
    assert len(data) == end
    return ranks


def run_goal(ranks: list[tuple[list[Row], set[tuple[int, int]]]], rate: float, latency_s: float) -> float:
    """Run a schedule on links of their own between all ranks, each serving its messages one after the other."""
    done: dict[tuple[int, int], float] = {}
    arrivals: dict[tuple[int, int, int], float] = {}
    free: dict[tuple[int, int], float] = defaultdict(float)
    waits = [{op: [b for a, b in pairs if a == op] for op in range(len(rows))} for rows, pairs in ranks]
    progress = True
    while progress:
        progress = False
        ready = []
        for rank, (rows, _) in enumerate(ranks):
            for op, (kind, amount, peer, tag) in enumerate(rows):
                if (rank, op) in done or any((rank, need) not in done for need in waits[rank][op]):
                    continue
                if kind == RECV and (peer, rank, tag) not in arrivals:
                    continue
                ready.append(
                    (
                        max((done[rank, need] for need in waits[rank][op]), default=0.0),
                        rank,
                        op,
                        kind,
                        amount,
                        peer,
                        tag,
                    )
                )
        for start, rank, op, kind, amount, peer, tag in sorted(ready):
            progress = True
            if kind == SEND:
                begin = max(start, free[rank, peer])
                free[rank, peer] = begin + amount / rate
                arrivals[rank, peer, tag] = free[rank, peer] + latency_s
                done[rank, op] = start
            else:
                done[rank, op] = start + amount * 1e-9 if kind == CALC else max(start, arrivals[peer, rank, tag])
    assert len(done) == sum(len(rows) for rows, _ in ranks), "a deadlock"
    return max(done.values(), default=0.0)


def programs() -> list[Program]:
    found: list[Program] = []
    for op in ("all-reduce", "reduce-scatter", "all-gather"):
        found += [
            ring(Collective(op, range(p), p * 8192), channels=channels) for p, channels in ((2, 1), (5, 1), (4, 2))
        ]
        found.append(blueconnect(Collective(op, range(12), 12 * 8192), factors=(2, 3, 2)))
    return found


@pytest.mark.parametrize(
    "program", programs(), ids=lambda each: f"{each.name}-{each.collective.op}-{each.p}-{each.channels}"
)
def test_goal_text_binary_and_time(program: Program) -> None:
    text = parse_goal(goal(program, reduce_rate=1e10).decode())
    assert text == parse_binary(goal_binary(program, reduce_rate=1e10))
    plain = parse_goal(goal(program).decode())
    sent = sum(amount for rows, _ in plain for kind, amount, _, _ in rows if kind == SEND)
    received = sum(amount for rows, _ in plain for kind, amount, _, _ in rows if kind == RECV)
    assert sent == received == program.cost.sent_bytes
    on = machine(full(program.p, 1e10, 1e-6))
    ours = events.run(flat.flatten(program, on), on, native=False).time_ps / 1e12
    assert run_goal(plain, 1e10, 1e-6) == pytest.approx(ours, rel=1e-6)


@needs_shared_data
@pytest.mark.parametrize("name", [name for name in MSCCL if "ncv4" in name])
def test_declared_programs_become_schedules_that_end(name: str) -> None:
    program = read_program(real(f"real/msccl-xml/{name}.xml"))
    assert run_goal(parse_goal(goal(program).decode()), 1e10, 1e-6) > 0
    assert parse_goal(goal(program).decode()) == parse_binary(goal_binary(program))


def test_operations_come_in_an_order_that_works() -> None:
    for program in programs():
        ops = operations(program, reduce_rate=1e10)
        assert (ops.rank[ops.before] == ops.rank[ops.after]).all()
        assert (ops.before < ops.after).all()
        assert (np.diff(ops.rank) >= 0).all()


def test_four_gibibytes_are_too_much_for_goal() -> None:
    with pytest.raises(ProgramError, match="4 GiB"):
        goal(ring(Collective("all-gather", range(2), 1 << 33)))


# -------------------------------------------------------------------------------------------------------------- Chakra
def decode(data: bytes) -> list[dict[int, list[Any]]]:
    """Return the messages of a file: field number -> values (numbers, or bytes)."""
    found, at = [], 0
    while at < len(data):
        size, at = varint(data, at)
        found.append(fields(data[at : at + size]))
        at += size
    assert at == len(data)
    return found


def fields(data: bytes) -> dict[int, list[Any]]:
    out: dict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            out[key >> 3].append(data[at : at + value])
            at += value
        else:
            assert key & 7 == 0
            out[key >> 3].append(value)
    return out


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


@needs_shared_data
@pytest.mark.parametrize("op", ["all-reduce", "all-to-all", "reduce-scatter"])
def test_one_collective_is_written_as_astra_sim_writes_it(op: str) -> None:
    name = f"{op.replace('-', '_')}_8npus_1MB"
    ours = chakra_collective(Collective(op, range(8), 1 << 20), name=name)
    assert len(ours) == 8
    folder = "real/chakra/astra_" if op == "reduce-scatter" else "real/chakra/astra_sim/"
    assert ours[0] == real(f"{folder}{name}.0.et").read_bytes()


def test_what_chakra_does_not_have() -> None:
    with pytest.raises(ProgramError, match="send-recv"):
        chakra_collective(Collective("send-recv", range(2), 8))
    file = chakra_collective(Collective("barrier", range(2), 0), group="7")[1]
    _, node = decode(file)
    assert node[3] == [7]
    assert [fields(each)[1] for each in node[10]][-1] == [b"pg_name"]


def test_a_program_as_nodes() -> None:
    files = chakra_program(ring(Collective("all-reduce", range(4), 4096)), reduce_rate=1e9)
    assert len(files) == 4
    for rank, file in enumerate(files):
        head, *nodes = decode(file)
        assert head[1] == [b"0.0.4"]
        assert [node[1] or [0] for node in nodes] == [[number] for number in range(len(nodes))]
        kinds = [node[3][0] for node in nodes]
        assert (kinds.count(5), kinds.count(6), kinds.count(4)) == (6, 6, 3)
        for number, node in enumerate(nodes):
            waits, at = [], 0
            packed = b"".join(node[5])
            while at < len(packed):
                wait, at = varint(packed, at)
                waits.append(wait)
            assert all(wait < number for wait in waits)
            values = {
                bytes(fields(each)[1][0]): next(v for k, v in fields(each).items() if k != 1)[0] for each in node[10]
            }
            if node[3] == [5]:
                assert (values[b"comm_src"], values[b"comm_dst"], values[b"comm_size"]) == (rank, (rank + 1) % 4, 1024)
