"""The law of transports: a connection goes by one of NCCL's transports, or its transport is unknown and the line is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringwright.analysis.summary import summarise
from ringwright.bounds.laws import reason
from ringwright.bounds.laws.transports import is_transport
from ringwright.formats.sources import read
from ringwright.model.trace import Trace

SPELLED = (
    "P2P/IPC",
    "P2P/IPC/read",
    "P2P/CUMEM",
    "P2P/CUMEM/read",
    "P2P/CUMEM/CE",
    "P2P/MNNVL",
    "P2P/direct pointer",
    "P2P/direct pointer/read",
    "P2P/indirect/3[1c]",
    "SHM",
    "SHM/direct/direct",
    "SHM/CE/direct",
    "direct shared memory",
    "NET/IB/0",
    "NET/IB/0/GDRDMA",
    "NET/IB/3(4)/GDRDMA/Shared",
    "NET/IB/0/GDRDMA(PCI)",
    "NET/Socket/0",
    "NET/Socket/1/Shared",
    "NET/AWS Libfabric/2/GDRDMA",
    "NET/IBext/1",
    "NET/IBext_v8/0/GDRDMA",
    "NET/FasTrak/0(1)/GDRDMA/Shared",
    "NET/UCX/0",
    "NET/GPUDirectTCPX_v7/3",
    "COLLNET/SHARP/0/GDRDMA",
)
ODD = (
    "NET/IBext/GDSetting up MemoryEfficient attention",
    "NET/IB",
    "NET/IB/",
    "NET//0",
    "NET/IB/0/GDRSetting",
    "P2P/IP",
    "P2P/1",
    "SHM/direct",
    "SHMdirect",
    "NVLS/whatever",
    "NET/IB/0 GDRDMA [",
    "P2P/IPC/readiness",
    "nothing",
)


def log(via: str) -> str:
    """Return the log of four ranks in a ring, whose second connection goes by ``via``."""
    who = [f"n{rank // 2}:10{rank}:10{rank} [{rank % 2}] NCCL INFO" for rank in range(4)]
    ways = ["P2P/IPC", via, "P2P/IPC", "NET/IBext/0/GDRDMA"]
    lines = [f"{who[0]} NCCL version 2.18.5+cuda12.2"]
    init = "comm 0x55{0} rank {0} nranks 4 cudaDev {1} busId {0}000 commId 0x77 - Init {2}"
    lines += [f"{who[rank]} {init.format(rank, rank % 2, 'START')}" for rank in range(4)]
    lines += [f"{who[r]} Channel 00/0 : {r}[{r}000] -> {(r + 1) % 4}[{(r + 1) % 4}000] via {ways[r]}" for r in range(4)]
    return "\n".join([*lines, *(f"{who[rank]} {init.format(rank, rank % 2, 'COMPLETE')}" for rank in range(4))]) + "\n"


def trace_of(folder: Path, via: str) -> Trace:
    (folder / "job.log").write_text(log(via))
    return read(folder / "job.log")


def connections(trace: Trace) -> list[tuple[int, int, str | None]]:
    rows = [row for row in trace.table("topology").to_dicts() if row["kind"] == "connection"]
    return sorted((row["src"], row["dst"], row["transport"]) for row in rows)


@pytest.mark.parametrize("via", SPELLED)
def test_every_spelling_is_read(via: str) -> None:
    assert is_transport(via)
    assert not is_transport(via + "Setting up")


@pytest.mark.parametrize("via", ODD)
def test_what_is_no_transport_is_refused_and_the_ranks_are_kept(tmp_path: Path, via: str) -> None:
    assert not is_transport(via)
    trace = trace_of(tmp_path, via)
    assert connections(trace)[1] == (1, 2, None)
    assert [row["transport"] for row in trace.table("topology").to_dicts() if row["kind"] == "connection"].count(
        "P2P/IPC"
    ) == 2
    (refused,) = [row for row in trace.table("ledger").to_dicts() if row["outcome"] == "refused"]
    assert (refused["reason"], refused["lines"], refused["example_line"]) == (reason("transport"), 1, 7)
    (row,) = summarise(trace)["laws"]
    assert (row["law"], row["refused"]) == ("transport", 1)
    assert via[:8] in row["example"]


def test_older_spellings_and_rccls_tail(tmp_path: Path) -> None:
    assert connections(trace_of(tmp_path, "direct shared memory"))[1] == (1, 2, "SHM")
    assert connections(trace_of(tmp_path, "P2P/IPC comm 0x7f1 nRanks 04"))[1] == (1, 2, "P2P/IPC")
    assert connections(trace_of(tmp_path, "NET/AWS Libfabric/3/GDRDMA"))[1] == (1, 2, "NET/AWS Libfabric/GDRDMA")


def test_a_transport_that_was_cut_is_put_together(tmp_path: Path) -> None:
    """Another process wrote into the middle of it; the rest stands at the beginning of the next line."""
    whole = log("NET/IB/0/GDRDMA")
    cut = whole.replace("via NET/IB/0/GDRDMA\n", "via NET/IB/0/GDn1:102:102 [0] NCCL INFO Connected all trees\nRDMA\n")
    (tmp_path / "job.log").write_text(cut)
    assert connections(read(tmp_path / "job.log"))[1] == (1, 2, "NET/IB/GDRDMA")
