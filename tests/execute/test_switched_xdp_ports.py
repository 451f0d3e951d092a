"""A switch whose kernel adds, on the ports of a real network of namespaces: the wire, the refusals, and nothing left behind."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.execute.rank_host import Place
from ringwright.execute.switched.client import SwitchClient
from ringwright.execute.switched.frames import control_bytes
from ringwright.execute.switched.serving import SwitchServer, read_key
from ringwright.execute.switched.switch import SwitchSettings
from ringwright.execute.switched.switch_process import AskedSwitch, started
from ringwright.execute.switched.worker import Membership
from ringwright.ground.errors import InfeasibleError, RanksFailedError, RingwrightError, UsageError
from ringwright_lab import network as lab
from ringwright_lab.network import LabNetwork
from ringwright_lab.network.namespace_daemon import without_offloads
from switched_kernel import tables_or_skip

pytestmark = pytest.mark.once
KEY = b"a key of this test"
NEW_NETWORK = 0x40000000
Result = TypeVar("Result")


@pytest.fixture(scope="module", autouse=True)
def has_xdp() -> None:
    """Skip where this machine has no XDP or gives no namespaces, and say why."""
    tables_or_skip(1).loaded.close()
    try:
        with lab.network("switch:2,rate=1Gb/s", rootless=False):
            pass
    except InfeasibleError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def star() -> Iterator[LabNetwork]:
    """Three ranks on one switch."""
    with lab.network("switch:3,rate=1Gb/s", adds=True, xdp=True, rootless=False) as net:
        yield net


@pytest.fixture
def served() -> Iterator[Callable[..., SwitchServer]]:
    """Give what has a server run in a node of a lab; all end with the test."""
    stop = threading.Event()
    running: list[tuple[threading.Thread, SwitchServer]] = []

    def start(net: LabNetwork, node: int, settings: SwitchSettings, port: int, **knobs: Any) -> SwitchServer:
        host = next(each.address for each in net.switches if each.rank == node)
        server = at(net, node, lambda: SwitchServer(settings, (host, port), **knobs))
        thread = threading.Thread(target=at, args=(net, node, lambda: server.run(stop.is_set)))
        thread.start()
        running.append((thread, server))
        return server

    yield start
    stop.set()
    for thread, server in running:
        thread.join()
        server.close()


def at(net: LabNetwork, node: int, call: Callable[[], Result]) -> Result:
    """Return what a call gives in the network namespace of a node; what it opened there stays there."""
    given: list[Result] = []
    met: list[BaseException] = []

    def go() -> None:
        space = os.open(f"/proc/{net._inside[node].pid}/ns/net", os.O_RDONLY)
        try:
            assert not ctypes.CDLL(None).setns(space, NEW_NETWORK)
            given.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            met.append(error)
        finally:
            os.close(space)

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if met:
        raise met[0]
    return given[0]


def client(net: LabNetwork, rank: int, member: Membership, server: SwitchServer, **knobs: Any) -> SwitchClient:
    """Return a worker on a rank."""
    return at(net, rank, lambda: SwitchClient(member, server.wire.address, **knobs))


def together(clients: list[SwitchClient], vectors: list[np.ndarray]) -> list[np.ndarray]:
    """Let each worker sum its vector in a thread of its own."""
    sums: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda each=each: sums.update({each: clients[each].all_reduce(vectors[each])}))
        for each in range(len(clients))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    return [sums[number] for number in range(len(clients))]


def test_two_jobs_add_in_the_kernel_under_loss(star: LabNetwork, served: Callable[..., SwitchServer]) -> None:
    server = served(star, 3, SwitchSettings(3, 128, 2, KEY), 5000, xdp="all")
    server.lose(0.02)
    before = star.counters()
    for job, codec, payload in ((0, "none", 1024), (1, "block-exponent", 256)):
        kind = np.int32 if codec == "none" else np.float32
        vectors = [(np.arange(20_000) % 97 + number).astype(kind) for number in range(3)]
        workers = [
            client(star, number, Membership(number, 3, job, 64, codec, payload, 1, KEY), server) for number in range(3)
        ]
        for got in together(workers, vectors):
            assert np.array_equal(got, np.sum(vectors, axis=0))
        for each in workers:
            each.close()
    told = server.told()
    chunks = 3 * (79 + 313 + 64)
    assert (told["added"], told["strangers"], told["mismatched"]) == (chunks, 0, 0)
    assert told["lost"] > 0
    assert told["frames"] > chunks
    # The program on the socket has seen workers come and go, and copies that told it who was missing.
    assert server.frames - told["repeated"] < chunks / 2
    carried = star.counters()
    down, up = (carried[name] - before[name] for name in ("switch>rank0", "rank0>switch"))
    assert down > 20_000 * 4 * 2
    assert up > 20_000 * 4 * 2


@pytest.mark.parametrize("kernels", [("all", "all"), ("", "all"), ("all", "")])
def test_two_levels_of_either_kind(
    tree: LabNetwork, served: Callable[..., SwitchServer], kernels: tuple[str, str]
) -> None:
    root, leaf = kernels
    port = 5000 + 10 * len(root) + len(leaf)
    if root != leaf:  # whose kernel does not add has to merge, to take what the other's sends
        for node in (4, 5, 6):
            at(tree, node, merge)
    middle = served(tree, 6, SwitchSettings(2, key=KEY), port, xdp=root)
    leaves = [
        served(tree, 4 + each, SwitchSettings(2, 64, 1, KEY, each), port, parent=middle.wire.address, xdp=leaf)
        for each in range(2)
    ]
    vectors = [np.arange(5000, dtype=np.float32) % 50 + 1 + number for number in range(4)]
    workers = [
        client(tree, number, Membership(number % 2, 4, session=1, key=KEY), leaves[number // 2]) for number in range(4)
    ]
    for got in together(workers, vectors):
        assert np.array_equal(got, np.sum(vectors, axis=0))
    for each in workers:
        each.close()


@pytest.fixture(scope="module")
def tree() -> Iterator[LabNetwork]:
    """Two leaves with two ranks each."""
    with lab.network("leaf-spine:4,spines=1,rate=1Gb/s", adds=True, xdp=True, rootless=False) as net:
        yield net


def test_who_cannot_be_reached_and_who_is_missing_is_said(
    star: LabNetwork, served: Callable[..., SwitchServer]
) -> None:
    server = served(star, 3, SwitchSettings(3, key=KEY), 5001, xdp="p0,p1")
    first, second, third = (Membership(each, 3, session=1, key=KEY) for each in range(3))
    with (
        client(star, 0, first, server, patience_s=0.5) as one,
        client(star, 0, second, server) as beside,
        client(star, 2, third, server) as outside,
    ):
        one.join()
        with pytest.raises(InfeasibleError, match="behind the same port") as shared:
            beside.join()
        assert "a port for each worker" in shared.value.remedy
        with pytest.raises(InfeasibleError, match="no port on which the kernel adds"):
            outside.join()
        stranger = at(star, 1, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        one.worker.begin(np.ones(10, np.float32), time.monotonic())
        for frame in one.worker.frames(0.0):
            stranger.sendto(frame.tobytes(), server.wire.address)
        stranger.close()
        with pytest.raises(RanksFailedError, match=r"worker 1, 2 has sent nothing for \d+\.\d s; worker 0 waits"):
            one.all_reduce(np.ones(10, np.float32))
    assert server.told()["strangers"] == 1


def test_a_port_whose_other_end_takes_nothing_of_xdp_is_refused(served: Callable[..., SwitchServer]) -> None:
    with lab.network("switch:2,rate=1Gb/s", adds=True, rootless=False) as net:
        server = served(net, 2, SwitchSettings(2, key=KEY), 5000, xdp="all")
        with (
            client(net, 0, Membership(0, 2, key=KEY), server) as one,
            pytest.raises(InfeasibleError, match="its port sends nothing") as refused,
        ):
            one.join()
        assert "gro on" in refused.value.remedy


def test_where_the_kernel_cannot_add(star: LabNetwork, served: Callable[..., SwitchServer]) -> None:
    host = star.switches[0].address
    settings = SwitchSettings(3, key=KEY)
    says: tuple[tuple[tuple[str, int], str, type[RingwrightError], str], ...] = (
        ((host, 5002), "p0,p9", UsageError, "no port 'p9' here"),
        ((host, 5002), "br0", InfeasibleError, "no XDP: this port takes no program"),
        ((host, 5002), "lo", InfeasibleError, "no XDP: this port takes no program"),
        (("0.0.0.0", 5002), "all", UsageError, "one address"),
    )
    for listen, xdp, kind, words in says:
        with pytest.raises(kind, match=words) as refused:
            at(star, 3, lambda listen=listen, xdp=xdp: SwitchServer(settings, listen, xdp=xdp))
        assert refused.value.remedy
    served(star, 3, settings, 5002, xdp="all")  # whoever was refused has left the port free
    with pytest.raises(InfeasibleError, match="another program is on this port"):
        at(star, 3, lambda: SwitchServer(settings, (host, 5003), xdp="all"))


def test_each_frame_is_counted_once_and_counts_outlive_the_program(star: LabNetwork) -> None:
    host = star.switches[0].address
    server = at(star, 3, lambda: SwitchServer(SwitchSettings(3, key=KEY), (host, 5005), xdp="all"))
    stranger = at(star, 0, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    for size in (control_bytes(KEY), 138):  # one that goes on to the program, one that the kernel drops
        stranger.sendto(bytes(size), (host, 5005))
    stranger.close()
    until_s = time.monotonic() + HANG_S
    while server.told()["strangers"] < 2 and time.monotonic() < until_s:
        server.step(0.01)
    server.close()
    told = server.told()
    assert (server.frames, told["frames"], told["strangers"]) == (1, 2, 2)


def test_nothing_is_left_of_a_switch_that_is_killed(star: LabNetwork, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a key of this test")
    place = star.switches[0]
    for way in ("kill", "close"):
        asked = AskedSwitch(f"{place.address}:5004", 3, 4, key, xdp="all")
        with started(asked, place.command) as one:
            assert one.process.stdin is not None
            assert "xdp" in shown(place)
            one.process.kill() if way == "kill" else one.process.stdin.close()
            one.process.wait(HANG_S)
            if way == "close":
                one.process.stdin = None
            until_s = time.monotonic() + HANG_S
            while "xdp" in shown(place) and time.monotonic() < until_s:
                time.sleep(0.01)
            assert "xdp" not in shown(place)
    assert read_key(key)


def shown(place: Place) -> str:
    """Return what the kernel says of the ports of a switch."""
    return subprocess.run([*place.command, "ip", "link"], capture_output=True, text=True, check=True).stdout


def merge() -> None:
    """Have all ports of this namespace merge what they receive."""
    for _, name in socket.if_nameindex():
        without_offloads(name, merging=True)


def test_ranks_of_a_benchmark_go_through_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "switchml:codec=fixed-point,switchml:xdp=true,switchml:xdp=true:slots=4:payload=32:loss=0.02"
    sizes = ["-b", "40000", "-e", "40000", "-n", "2", "-w", "0"]
    argv = ["bench", "all-reduce", "-g", "2", "--lab", "switch:2,rate=1Gb/s", "--algorithm", asked, *sizes, "--json"]
    assert main(argv) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["algorithm"], row["wire"], row["wrong"]) for row in rows] == [
        (name, "switch", 0) for name in sorted(asked.split(","))
    ]
