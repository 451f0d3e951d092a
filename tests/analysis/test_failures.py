"""A crash is told by its cause: the first warning that is no shadow of another's end, and what its words mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringwright import read, summary
from ringwright.analysis.failures import cause_of

HEAD = "n1:10:11 [3] "
CHAIN = f"{HEAD}NCCL INFO transport/net_ib.cc:659 -> 2"


def told(folder: Path, *lines: str, name: str = "nccl.log") -> dict[str, Any]:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return dict(summary(read(str(path)))["answer"] or {})


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("Error: failed to extend /dev/shm/nccl-a to 4 bytes", "shared memory of the host or container is too small"),
        ("Error while creating shared memory segment /dev/shm/nccl-a (size 4)", "processes of a host share"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "limit of locked memory"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "limit of locked memory"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "the same GPU"),
        ("Cuda failure 2 'out of memory'", "memory is full"),
        ("socketAccept: Too many open files", "open files"),
        ("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "driver is older"),
        ("NET/OFI No eligible providers were found", "libfabric finds no provider"),
        ("Call to ibv_modify_qp failed with error Invalid argument errno 22", "GID index"),
        ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("Message truncated : received 1024 bytes instead of 256", "different size"),
        ("socketStartConnect: Connect to 10.0.0.2<33333> failed : No route to host", "is not reached"),
        ("Error: network AWS Libfabric not found.", "NCCL_NET"),
    ],
)
def test_words_of_a_failure_have_a_meaning_and_a_command(tmp_path: Path, words: str, meaning: str) -> None:
    answer = told(tmp_path, f"{HEAD}misc/x.cc:1 NCCL WARN {words}", CHAIN)
    assert answer["kind"] == "failed"
    assert answer["sentence"].startswith(f"Failed: {words.rstrip('.')} (device 3 of n1, in transport/net_ib.cc)")
    assert meaning in answer["sentence"]
    cause = cause_of(words)
    assert cause is not None
    assert answer["command"] == cause.command


def test_a_shadow_is_not_the_cause_though_it_comes_first(tmp_path: Path) -> None:
    shadow = f"{HEAD}proxy.cc:1 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3"
    answer = told(tmp_path, shadow, f"{HEAD}x.cc:1 NCCL WARN Cuda failure 2 'out of memory'", CHAIN)
    assert "out of memory" in answer["sentence"]


def test_a_hint_is_no_failure(tmp_path: Path) -> None:
    """A warning about settings stands beside the failure, or alone in a log that goes on."""
    hint = f'{HEAD}init.cpp:1 NCCL WARN Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment'
    failed = f"{HEAD}proxy.cc:1 NCCL WARN Socket recv failed while polling for opId=0x1"
    assert "Socket recv failed" in told(tmp_path, hint, failed, CHAIN)["sentence"]
    assert told(tmp_path, hint)["kind"] == "cannot-tell"


def test_a_warning_that_nothing_follows_is_a_perhaps_and_none_where_calls_went_on(tmp_path: Path) -> None:
    warning = f"{HEAD}net.cc:1 NCCL WARN NET/OFI Creating new endpoint for domain 0x1 failed: Invalid argument"
    provider = "libfabric:85:1::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list"
    answer = told(tmp_path, provider, warning)
    assert answer["sentence"].startswith("Perhaps failed: NET/OFI Creating new endpoint")
    assert "libfabric finds no provider" in answer["sentence"]
    call = (
        f"{HEAD}NCCL INFO AllReduce: opCount 0 sendbuff 0x7f1 recvbuff 0x7f2 count 1024 datatype 7 op 0 root 0 comm 0x5 "
        "[nranks=1] stream 0x9"
    )
    assert told(tmp_path, warning, call)["kind"] != "failed"


def test_one_end_that_tells_of_a_dead_path_does_not_accuse_the_other(tmp_path: Path) -> None:
    words = (
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.9<4> with status=12 opcode=129 len=1 vendor err 129 (Recv)"
    )
    one = told(tmp_path, f"n1:10:11 [3] ib.c:1 {words}")
    assert "either end may be dead, or the path from n1 to it" in one["sentence"]
    assert {each["name"]: each["value"] for each in one["figures"]}["confidence"] == "0.50"
    two = told(tmp_path, f"n1:10:11 [3] ib.c:1 {words}", f"n2:10:11 [3] ib.c:1 {words}")
    assert "2 hosts say so" in two["sentence"]


# ------------------------------------------------------------------------------------------------------------------ RAS
TABLE = [
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
    "    #  in group  per comm  per node  per comm  in group",
]


def row(ranks: int, status: str, errors: str) -> str:
    return f"    0         1         2         4         8  {ranks:8}  {status}  {errors}"


def test_who_does_not_answer_and_who_is_dead(tmp_path: Path) -> None:
    silent = [*TABLE, row(7, "RUNNING", "INCOMPLETE"), "INCOMPLETE", "  Missing communicator data from 1 job process"]
    process = "  Process 70 on node 10.0.0.2 managing GPU 3"
    named = ["#0-0 (b3398875b8b2a063) INCOMPLETE", "  Missing communicator data from 1 rank", "  The missing rank: 5"]
    answer = told(tmp_path, *silent, process, *named, name="ras.txt")
    assert (answer["kind"], answer["ranks"]) == ("hung", [5])
    assert "process 70 on 10.0.0.2, GPU 3" in answer["sentence"]
    dead = ["DEAD", "  1 job process is considered dead (unreachable via the RAS network)", process]
    answer = told(tmp_path, *dead, *named, name="ras.txt")
    assert (answer["kind"], answer["ranks"]) == ("failed", [5])
    assert "dead" in answer["sentence"]


def test_ranks_that_are_not_listed_follow_by_subtraction(tmp_path: Path) -> None:
    behind = [
        *TABLE,
        row(8, "RUNNING", "MISMATCH"),
        "#0-0 (fa93daea854b060b) MISMATCH",
        "  Communicator ranks have different AllGather operation counts",
        "  6 ranks have launched up to operation 640",
        "  2 ranks have launched up to operation 645",
        "  Rank 2 -- GPU 2 managed by process 323 on node n2",
        "  Rank 3 -- GPU 3 managed by process 324 on node n2",
    ]
    answer = told(tmp_path, *behind, name="ras.txt")
    assert (answer["kind"], answer["ranks"]) == ("hung", [0, 1, 4, 5, 6, 7])
    assert "5 AllGathers behind" in answer["sentence"]


def test_a_table_where_all_is_well_accuses_nobody_and_tells_the_ranks(tmp_path: Path) -> None:
    path = tmp_path / "ras.txt"
    path.write_text("\n".join([*TABLE, row(8, "RUNNING", "OK"), ""]))
    said = summary(read(str(path)))
    assert said["verdict"] is None
    assert said["ranks_expected"] == 8
    assert told(tmp_path, *TABLE, row(8, "ABORT", "OK"), name="ras.txt")["kind"] == "failed"


# -------------------------------------------------------------------------------------------------- sockets, taken-off names
def init(host: str, rank: int, network: str) -> list[str]:
    said = f"{host}:{10 + rank}:1 [0] NCCL INFO"
    comm = f"comm 0x55{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 19000 commId 0xd37e70d13f797e7e"
    return [f"{said} Using network {network}", f"{said} ncclCommInitRank {comm} - Init COMPLETE"]


def test_sockets_between_hosts_are_said_first_with_what_nccl_could_not_use(tmp_path: Path) -> None:
    lost = "a:10:1 [0] NCCL INFO NET/IB : No device found."
    answer = told(tmp_path, lost, *init("a", 0, "Socket"), *init("b", 1, "Socket"))
    assert answer["kind"] == "slow"
    assert answer["sentence"].startswith("Slow network: NCCL moves data between 2 hosts over TCP sockets")
    assert "NET/IB : No device found" in answer["sentence"]
    off = "a:10:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1."
    assert "NCCL_IB_DISABLE is 1" in told(tmp_path, off, *init("a", 0, "Socket"), *init("b", 1, "Socket"))["sentence"]
    mixed = told(tmp_path, lost, *init("a", 0, "Socket"), *init("b", 1, "IB"))["sentence"]
    assert mixed.startswith("Slow network: some processes on 2 hosts use TCP sockets, others use IB")
    assert told(tmp_path, lost, *init("a", 0, "IB"), *init("b", 1, "IB"))["kind"] == "cannot-tell"
    assert told(tmp_path, lost, *init("a", 0, "Socket"), *init("a", 1, "Socket"))["kind"] == "cannot-tell"


@pytest.mark.parametrize("put", ["", "***:***:*** ", "<host>:<pid>:<tid> "])
def test_lines_without_their_process_are_read_by_device_and_name_no_host(tmp_path: Path, put: str) -> None:
    comm = "comm 0x563cb{0} rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId b00{0} commId 0xfa356df9cba89de0"
    lines = [f"{put}[{rank}] NCCL INFO ncclCommInitRank {comm.format(rank)} - Init COMPLETE" for rank in range(3)]
    path = tmp_path / "nccl.log"
    path.write_text("\n".join([*lines, ""]))
    said = summary(read(str(path)))
    assert (said["ranks_seen"], said["ranks_expected"], said["hosts"]) == (3, 4, 0)
    assert said["ledger"]["understood"] == 3
    assert {each["host"] for each in said["ranks"]} == {None}


def test_steps_without_calls_are_told(tmp_path: Path) -> None:
    line = " iteration {}/ 100 | elapsed time per iteration (ms): {} | learning rate: 1.0E-04 | global batch size: 8 |"
    answer = told(tmp_path, line.format(1, "5444.9"), line.format(2, "5533.8"), name="train.log")
    assert answer["kind"] == "cannot-tell"
    assert answer["sentence"].startswith("A step takes 5.489 s (2 read)")


# ------------------------------------------------------------------------------------------------------------------ tables
def table(
    folder: Path, rows: list[tuple[int, float, float]], calls: str = "warmup iters: 5 iters: 20"
) -> dict[str, Any]:
    head = [
        f"# nThread 1 nGpus 8 minBytes 1 maxBytes 1 step: 2(factor) {calls} agg iters: 1 validation: 1 graph: 0",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    ]

    def side(size: int, time_us: float) -> str:
        return f"{time_us:8.2f} {size / time_us / 1e3:8.2f} {size / time_us / 1e3 * 1.75:8.2f} 0"

    lines = [
        f"{size:12} {size // 4:12} float sum -1 {side(size, out)} {side(size, there)}" for size, out, there in rows
    ]
    return told(folder, *head, *lines, name="all_reduce_perf.txt")


def test_a_fall_with_growing_size_leads_and_needs_no_other_system(tmp_path: Path) -> None:
    steady = [(1 << 20, 100.0, 100.0), (2 << 20, 200.0, 200.0), (4 << 20, 400.0, 400.0)]
    assert table(tmp_path, steady)["kind"] == "cannot-tell"
    answer = table(tmp_path, [*steady, (8 << 20, 4000.0, 4000.0)])
    assert answer["kind"] == "slow"
    assert answer["sentence"].startswith("Slow past 4 MiB: all-reduce: bandwidth falls by 80% from 4 MiB to 8 MiB")
    spike = table(tmp_path, [steady[0], (2 << 20, 2000.0, 2000.0), *steady[2:], (8 << 20, 800.0, 800.0)])
    assert spike["sentence"].startswith(
        "Slow at one size: all-reduce: 2 MiB takes 10.0 times what its neighbours suggest"
    )


def test_what_was_measured_cold_is_no_measure_of_the_system(tmp_path: Path) -> None:
    warm = [(16 << 20, 1000.0, 990.0)]
    answer = table(tmp_path, warm, "warmup iters: 0 iters: 1")
    assert answer["kind"] == "cannot-tell"
    assert "no warm-up (-w 0), one call a size (-n 1)" in answer["sentence"]
    assert "measured cold" not in table(tmp_path, warm, "warmup iters: 1 iters: 1")["sentence"]
    once = table(tmp_path, [(16 << 20, 412_345.0, 12_345.0)], "warmup iters: 1 iters: 1")
    assert "one call a size (-n 1), out of place takes 33 times as long as in place" in once["sentence"]
    assert "measured cold" not in table(tmp_path, [(16 << 20, 412_345.0, 12_345.0)])["sentence"]


def test_how_long_ranks_took_to_begin_is_told_where_nothing_else_is(tmp_path: Path) -> None:
    comm = "comm 0x563cb{0} rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId b00{0} commId 0xfa356df9cba89de0"
    said = "n1:10{0}:1 [{0}] NCCL INFO "
    times = "Init timings - ncclCommInitRankConfig: rank {0} nranks 4 total {1} (kernels 1.22, topo 1.10)"
    lines = [(said + f"ncclCommInitRankConfig {comm} - Init COMPLETE").format(rank) for rank in range(3)]
    lines += [(said + times).format(rank, f"{3 + rank}.03") for rank in range(3)]
    answer = told(tmp_path, *lines)
    assert answer["kind"] == "cannot-tell"
    assert answer["sentence"].endswith("initialised: 3 of 4 ranks in 5.03 s.")
    assert "initialised" not in told(tmp_path, *lines[:3])["sentence"]


def test_words_far_from_the_first_failure_are_not_its_cause(tmp_path: Path) -> None:
    first, other = (
        f"{HEAD}x.cc:1 NCCL WARN {words}" for words in ("Call to foo failed", "Bootstrap : no socket interface found")
    )
    info = f"{HEAD}NCCL INFO Channel 00/02 :    0   1"
    assert "NCCL_SOCKET_IFNAME" in told(tmp_path, first, CHAIN, other)["sentence"]
    assert "NCCL_SOCKET_IFNAME" not in told(tmp_path, first, CHAIN, *[info] * 30, other)["sentence"]
