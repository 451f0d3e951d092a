"""Programs of mpi4py for test_mpi_shim.py: each writes down, call by call, what a recording of it has to say.

``truth`` takes what the standard says of the call, with numbers worked out by hand for p ranks: (op, datatype, count, sent bytes,
received bytes, root, peer, reduction, whether it is nonblocking, members of its communicator).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
ME, P = WORLD.rank, WORLD.size
FULL = tuple(range(P))
TRUTH: list[Any] = []


def truth(
    op: str,
    datatype: str,
    count: int,
    sent: int | None,
    received: int | None,
    root: int | None = None,
    peer: int | None = None,
    reduction: str = "",
    later: int = 0,
    members: tuple[int, ...] = FULL,
) -> None:
    TRUTH.append([op, datatype, count, sent, received, root, peer, reduction, later, list(members)])


def f32(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def collectives(comm: MPI.Comm, way: str = "blocking") -> None:
    """Every collective, blocking, nonblocking or prepared, 6 elements of 4 bytes a rank and ragged forms."""
    later = int(way != "blocking")

    def call(name: str, *arguments: Any) -> None:
        spelled = {"blocking": name, "nonblocking": "I" + name.lower(), "prepared": name + "_init"}[way]
        request = getattr(comm, spelled)(*arguments)
        if way == "prepared":
            request.Start()
        if later:
            request.Wait()
        if way == "prepared":
            request.Free()

    me, root, members = comm.rank, P - 1, tuple(comm.group.Translate_ranks(None, WORLD.group))
    here = me == root

    def says(*what: Any, **more: Any) -> None:
        truth(*what, later=later, members=members, **more)

    call("Barrier")
    says("barrier", "", 0, 0, 0)
    call("Allreduce", f32(6), f32(6), MPI.SUM)
    says("all-reduce", "float32", 6, 24, 24, reduction="sum")
    call("Allreduce", MPI.IN_PLACE, np.ones(6, np.float64), MPI.PROD)
    says("all-reduce", "float64", 6, 48, 48, reduction="prod")
    call("Reduce", f32(6), f32(6) if here else None, MPI.MIN, root)
    says("reduce", "float32", 6, 24, 24 if here else None, root=root, reduction="min")
    call("Reduce", MPI.IN_PLACE if here else f32(6), f32(6) if here else None, MPI.MAX, root)
    says("reduce", "float32", 6, 24, 24 if here else None, root=root, reduction="max")
    call("Bcast", np.ones(6, np.int16), root)
    says("broadcast", "int16", 6, 12, 12, root=root)
    call("Scan", f32(6), f32(6))
    says("scan", "float32", 6, 24, 24, reduction="sum")
    call("Exscan", np.ones(6, np.int64), np.ones(6, np.int64), MPI.BXOR)
    says("exscan", "int64", 6, 48, 48, reduction="bxor")
    call("Allgather", f32(6), f32(6 * P))
    says("all-gather", "float32", 6, 24, 24 * P)
    call("Allgather", MPI.IN_PLACE, f32(6 * P))
    says("all-gather", "float32", 6, 24, 24 * P)
    counts = [1 + rank for rank in range(P)]
    total, places = sum(counts), [sum(counts[:rank]) for rank in range(P)]
    ragged = [f32(total), counts, places, MPI.FLOAT]
    call("Allgatherv", f32(me + 1), ragged)
    says("all-gather", "float32", me + 1, 4 * (me + 1), 4 * total)
    call("Allgatherv", MPI.IN_PLACE, ragged)
    says("all-gather", "float32", me + 1, 4 * (me + 1), 4 * total)
    call("Gather", f32(6), f32(6 * P) if here else None, root)
    says("gather", "float32", 6, 24, 24 * P if here else None, root=root)
    call("Gather", MPI.IN_PLACE if here else f32(6), f32(6 * P) if here else None, root)
    says("gather", "float32", 6, 24, 24 * P if here else None, root=root)
    call("Gatherv", f32(me + 1), ragged if here else None, root)
    says("gather", "float32", me + 1, 4 * (me + 1), 4 * total if here else None, root=root)
    call("Scatter", f32(6 * P) if here else None, f32(6), root)
    says("scatter", "float32", 6 * P if here else 6, 24 * P if here else None, 24, root=root)
    call("Scatter", f32(6 * P) if here else None, MPI.IN_PLACE if here else f32(6), root)
    says("scatter", "float32", 6 * P if here else 6, 24 * P if here else None, 24, root=root)
    call("Scatterv", ragged if here else None, f32(me + 1), root)
    own = 4 * (me + 1)
    says("scatter", "float32", total if here else me + 1, 4 * total if here else None, own, root=root)
    call("Reduce_scatter", f32(total), f32(me + 1), counts)
    says("reduce-scatter", "float32", total, 4 * total, own, reduction="sum")
    call("Reduce_scatter_block", f32(6 * P), f32(6), MPI.SUM)
    says("reduce-scatter", "float32", 6 * P, 24 * P, 24, reduction="sum")
    call("Alltoall", f32(2 * P), f32(2 * P))
    says("all-to-all", "float32", 2 * P, 8 * P, 8 * P)
    call("Alltoall", MPI.IN_PLACE, f32(2 * P))
    says("all-to-all", "float32", 2 * P, 8 * P, 8 * P)
    # Rank s sends d + 1 elements to rank d: each gets p times its own number.
    mine = [f32(P * (me + 1)), [me + 1] * P, [(me + 1) * rank for rank in range(P)], MPI.FLOAT]
    call("Alltoallv", ragged, mine)
    says("all-to-all", "float32", total, 4 * total, 4 * P * (me + 1))
    # Floats where rank 0 is one of the two, doubles between the others.
    pair = [MPI.FLOAT if 0 in {me, rank} else MPI.DOUBLE for rank in range(P)]
    spots, doubles = [8 * rank for rank in range(P)], sum(kind == MPI.DOUBLE for kind in pair)
    call("Alltoallw", [np.ones(P), [1] * P, spots, pair], [np.ones(P), [1] * P, spots, pair])
    name = "float32" if not doubles else "mixed"
    says("all-to-all", name, P, 4 * (P - doubles) + 8 * doubles, 4 * (P - doubles) + 8 * doubles)


def messages() -> None:
    right, left = (ME + 1) % P, (ME - 1) % P

    def sent(n: int, later: int = 0) -> None:
        truth("send", "float32", n, 4 * n, None, peer=right, later=later)

    def got(n: int, later: int = 0, peer: int | None = left) -> None:
        truth("recv", "float32", n, None, 4 * n, peer=peer, later=later)

    WORLD.Sendrecv(f32(3), right, 1, f32(3), left, 1)
    sent(3), got(3)
    WORLD.Sendrecv_replace(f32(4), right, 1, left, 1)
    sent(4), got(4)
    WORLD.Sendrecv(f32(3), MPI.PROC_NULL, 1, f32(3), MPI.PROC_NULL, 1)  # no call at all
    WORLD.Send(f32(3), MPI.PROC_NULL)
    MPI.Attach_buffer(bytearray(1 << 16))
    for send in (WORLD.Isend, WORLD.Issend, WORLD.Ibsend):
        receive = WORLD.Irecv(f32(5), left)
        got(5, 1)
        request = send(f32(5), right)
        sent(5, 1)
        MPI.Request.Waitall([request, receive])
    receive = WORLD.Irecv(f32(6), left, 9)
    got(6, 1)
    WORLD.Barrier()
    truth("barrier", "", 0, 0, 0)
    WORLD.Rsend(f32(6), right, 9)
    sent(6)
    receive.Wait()
    for send in (WORLD.Send, WORLD.Bsend):
        send(f32(7), right)
        sent(7)
        WORLD.Recv(f32(9), MPI.ANY_SOURCE)  # 7 of the 9 come, from the left
        got(7)
    request = WORLD.Irecv(f32(8), left)
    got(8, 1)
    WORLD.Ssend(f32(8), right)
    sent(8)
    request.Wait()
    prepared = [WORLD.Send_init(f32(2), right), WORLD.Recv_init(f32(2), left)]
    for _ in range(3):
        MPI.Prequest.Startall(prepared)
        sent(2, 1), got(2, 1)
        MPI.Request.Waitall(prepared)
    prepared[0].Start()
    sent(2, 1)
    prepared[1].Start()
    got(2, 1)
    for request in prepared:
        request.Wait()
        request.Free()
    sending = WORLD.Isend(f32(1), right, 4)
    sent(1, 1)
    message = WORLD.Mprobe(left, 4)
    message.Recv(f32(3))
    got(1)
    sending.Wait()
    sending = WORLD.Isend(f32(1), right, 5)
    sent(1, 1)
    message = None
    while message is None:
        message = WORLD.Improbe(MPI.ANY_SOURCE, 5)
    request = message.Irecv(f32(1))
    got(1, 1)
    MPI.Request.Waitall([request, sending])
    MPI.Detach_buffer()


def completions() -> None:
    """Each way to learn that a nonblocking call is complete, over several requests each."""

    def begun(n: int = 5) -> list[MPI.Request]:
        requests = []
        for _ in range(n):
            requests.append(WORLD.Iallreduce(f32(6), f32(6)))
            truth("all-reduce", "float32", 6, 24, 24, reduction="sum", later=1)
        return requests

    for request in begun():
        request.Wait()
    for request in begun():
        while not request.Test():
            pass
    MPI.Request.Waitall(begun(100))
    requests = begun()
    while not MPI.Request.Testall(requests):
        pass
    requests = begun()
    for _ in requests:
        MPI.Request.Waitany(requests)
    requests, left = begun(), 5
    while left:
        left -= MPI.Request.Testany(requests)[0] != MPI.UNDEFINED
    requests, left = begun(), 5
    while left:
        left -= len(MPI.Request.Waitsome(requests) or [])
    requests, left = begun(), 5
    while left:
        left -= len(MPI.Request.Testsome(requests) or [])


def groups() -> None:
    """Communicators made in many ways, freed and made again; the members of each as ranks of the world."""

    def used(comm: MPI.Comm, members: tuple[int, ...]) -> None:
        comm.Allreduce(f32(6), f32(6))
        truth("all-reduce", "float32", 6, 24, 24, reduction="sum", members=members)
        comm.Free()

    for turn in range(10):  # a freed handle is used again, for other members
        even = tuple(rank for rank in FULL if rank % 2 == ME % 2)
        used(WORLD.Split(ME % 2, ME), even)
        used(WORLD.Split(0, -ME), tuple(reversed(FULL)))
        if turn % 2:
            used(WORLD.Dup(), FULL)
    used(WORLD.Split_type(MPI.COMM_TYPE_SHARED), FULL)
    first = WORLD.group.Incl([P - 1, 0])
    if ME in {0, P - 1}:
        used(WORLD.Create_group(first), (P - 1, 0))
    made = WORLD.Create(WORLD.group.Incl([0]))
    if ME == 0:
        used(made, (0,))
    cart = WORLD.Create_cart([P], periods=[True])
    used(cart.Sub([True]), FULL)
    used(cart, FULL)
    used(WORLD.Create_dist_graph_adjacent([ME], [ME]), FULL)
    twin = WORLD.Dup()
    twin.Set_name('say "twin"')
    used(twin.Dup(), FULL)
    twin.Free()
    MPI.COMM_SELF.Allreduce(f32(6), f32(6))
    truth("all-reduce", "float32", 6, 24, 24, reduction="sum", members=(ME,))


def types() -> None:
    def sent(datatype: str, count: int, size: int, spec: Any) -> None:
        WORLD.Bcast(spec, 0)
        truth("broadcast", datatype, count, size, size, root=0)

    for kind, name in (
        (np.int8, "int8"),
        (np.uint8, "uint8"),
        (np.uint16, "uint16"),
        (np.int32, "int32"),
        (np.uint64, "uint64"),
        (np.complex64, "complex64"),
        (np.complex128, "complex128"),
    ):
        sent(name, 3, 3 * np.dtype(kind).itemsize, np.ones(3, kind))
    sent("bool", 3, 3, [np.ones(3, bool), 3, MPI.C_BOOL])
    for turn in range(3):  # a freed handle stands for another size
        vector = MPI.FLOAT.Create_vector(2 + turn, 1, 3).Commit()
        sent("derived", 2, 2 * 4 * (2 + turn), [f32(40), 2, vector])
        vector.Free()
    user = MPI.Op.Create(lambda a, b, t: None, commute=True)
    WORLD.Allreduce(f32(6), f32(6), user)
    truth("all-reduce", "float32", 6, 24, 24, reduction="user")
    user.Free()
    inter = WORLD.Split(int(ME >= P // 2), ME)
    pair = inter.Create_intercomm(0, WORLD, P // 2 if ME < P // 2 else 0, 77)
    pair.Allreduce(f32(6), f32(6))  # noted as a loss
    pair.Free()
    inter.Free()


def inner() -> None:
    """Files and windows communicate inside the library: none of it is a call of the program's; what it puts is counted."""
    path = str(Path(sys.argv[2], "written"))
    file = MPI.File.Open(WORLD, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Write_at_all(ME * 24, f32(6))
    file.Set_view(0, MPI.FLOAT, MPI.FLOAT.Create_vector(3, 1, P).Commit())
    file.Write_all(f32(6))
    file.Close()
    window = MPI.Win.Create(np.zeros(6 * P, np.float32), 4, comm=WORLD)
    window.Fence()
    window.Put(f32(6), (ME + 1) % P, 0)
    window.Fence()
    window.Free()
    WORLD.Barrier()
    truth("barrier", "", 0, 0, 0)


TASKS = {
    "blocking": lambda: collectives(WORLD),
    "nonblocking": lambda: collectives(WORLD, "nonblocking"),
    "prepared": lambda: collectives(WORLD, "prepared"),
    "reversed": lambda: collectives(WORLD.Split(0, -ME)),
    "messages": messages,
    "completions": completions,
    "groups": groups,
    "types": types,
    "inner": inner,
}

if __name__ == "__main__":
    TASKS[sys.argv[1]]()
    Path(sys.argv[2], f"truth.{os.getpid()}.json").write_text(json.dumps([ME, P, TRUTH]))
