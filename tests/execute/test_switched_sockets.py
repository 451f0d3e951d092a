"""A switch that adds, over real sockets of this machine: exact under loss, strangers outside, the dead named, and as a program."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.execute.switched import datagrams, many, serving
from ringwright.execute.switched.client import SwitchClient
from ringwright.execute.switched.datagrams import Datagrams, parse
from ringwright.execute.switched.serving import SwitchServer, read_key
from ringwright.execute.switched.switch import SwitchSettings
from ringwright.execute.switched.switch_process import AskedSwitch, started
from ringwright.execute.switched.worker import Membership
from ringwright.ground.errors import InfeasibleError, InputError, RanksFailedError, UsageError

pytestmark = pytest.mark.once
HERE = ("127.0.0.1", 0)
KEY = b"a key of this test"


@pytest.fixture
def served() -> Iterator[Any]:
    """Give what starts a server in a thread; all end with the test."""
    stop = threading.Event()
    threads: list[threading.Thread] = []
    servers: list[SwitchServer] = []

    def start(settings: SwitchSettings, **knobs: Any) -> SwitchServer:
        server = SwitchServer(settings, HERE, **knobs)
        servers.append(server)
        threads.append(threading.Thread(target=server.run, args=(stop.is_set,)))
        threads[-1].start()
        return server

    yield start
    stop.set()
    for thread in threads:
        thread.join()
    for server in servers:
        server.close()


def together(clients: list[SwitchClient], vectors: list[np.ndarray], turns: int = 1) -> list[np.ndarray]:
    """Let each worker sum its vector in a thread of its own, so many times."""
    sums: dict[int, np.ndarray] = {}

    def go(number: int) -> None:
        for _ in range(turns):
            sums[number] = clients[number].all_reduce(vectors[number])

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    return [sums[number] for number in range(len(clients))]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_sums_are_exact_with_trains_and_without_under_loss(served: Any, plain: bool, loss: float) -> None:
    server = served(SwitchSettings(3, key=KEY), plain=plain)
    server.wire.lose(loss)
    vectors = [np.arange(30_000, dtype=np.float32) % 97 + number for number in range(3)]
    clients = [
        SwitchClient(Membership(number, 3, session=1, key=KEY), server.wire.address, plain=plain) for number in range(3)
    ]
    for each in clients:
        each.wire.lose(loss)
    again = 0
    for _ in range(50):  # trains are few: by lot none of them may be lost for a while
        for got in together(clients, vectors, turns=2):
            assert np.array_equal(got, np.sum(vectors, axis=0))
        again = sum(each.worker.counts["again"] for each in clients)
        if again or not loss:
            break
    for each in clients:
        each.close()
    assert again or not loss


def test_two_levels_and_two_jobs(served: Any) -> None:
    root = served(SwitchSettings(2, 32, 2, key=KEY))
    leaves = [served(SwitchSettings(2, 32, 2, KEY, branch), parent=root.wire.address) for branch in range(2)]
    for job in range(2):
        vectors = [np.arange(5000, dtype=np.int32) * (number + job) for number in range(4)]
        clients = [
            SwitchClient(
                Membership(number % 2, 4, job, 16, "none", session=9, key=KEY), leaves[number // 2].wire.address
            )
            for number in range(4)
        ]
        for got in together(clients, vectors):
            assert np.array_equal(got, np.sum(vectors, axis=0))
        for each in clients:
            each.close()


def test_a_second_run_takes_the_job_over(served: Any) -> None:
    server = served(SwitchSettings(2, key=KEY))
    vectors = [np.ones(1000, np.float32)] * 2
    for session in (1, 2):
        clients = [
            SwitchClient(Membership(each, 2, session=session, key=KEY), server.wire.address) for each in range(2)
        ]
        for got in together(clients, vectors):
            assert (got == 2).all()
        for each in clients:
            each.close()
    assert server.told()["added"] == 2 * 2 * 2 * 4  # sessions, workers, a round of exponents and the values, chunks


def test_a_worker_that_does_not_come_is_named(served: Any) -> None:
    server = served(SwitchSettings(2, key=KEY))
    with (
        SwitchClient(Membership(0, 2, session=1, key=KEY), server.wire.address, patience_s=0.5) as alone,
        pytest.raises(RanksFailedError, match=r"worker 1 has sent nothing for 0\.[5-9] s; worker 0 waits"),
    ):
        alone.all_reduce(np.ones(10, np.float32))


def test_no_switch_no_key_and_no_agreement_have_words_of_their_own(served: Any) -> None:
    server = served(SwitchSettings(2, key=KEY))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(HERE)
        for address, key in ((nobody.getsockname(), KEY), (server.wire.address, b"another key")):
            with (
                SwitchClient(Membership(0, 2, key=key), address, patience_s=0.3) as client,
                pytest.raises(RanksFailedError, match="no switch answers worker 0"),
            ):
                client.all_reduce(np.ones(10, np.float32))
    with (
        SwitchClient(Membership(0, 2, slots=65, key=KEY), server.wire.address) as client,
        pytest.raises(InfeasibleError, match="fewer slots"),
    ):
        client.all_reduce(np.ones(10, np.float32))
    assert server.switch.strangers


def test_where_a_switch_may_listen() -> None:
    with pytest.raises(UsageError, match="needs a key"):
        SwitchServer(SwitchSettings(2), ("0.0.0.0", 0))
    with pytest.raises(UsageError, match="has a number there"):
        SwitchServer(SwitchSettings(2, branch=0), HERE)
    with OpenDatagrams(HERE) as first, pytest.raises(InfeasibleError, match="taken"):
        Datagrams(*first.address)
    for text in ("here", "127.0.0.1", "127.0.0.1:70000", ":1"):
        with pytest.raises(UsageError, match="no address"):
            parse(text)


class OpenDatagrams(Datagrams):
    """Datagrams that close with a block."""

    def __init__(self, at: tuple[str, int], **knobs: Any) -> None:
        super().__init__(*at, **knobs)

    def __enter__(self) -> Datagrams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_keys_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(InputError, match="cannot be read"):
        read_key(file)
    file.write_text("short\n")
    with pytest.raises(InputError, match="8 bytes"):
        read_key(file)
    file.write_text("long enough\n")
    assert len(read_key(file)) == 32


@pytest.mark.parametrize("receives", ["many", "one by one", "plain"])
def test_trains_arrive_as_they_were_sent(monkeypatch: pytest.MonkeyPatch, receives: str) -> None:
    if receives == "one by one":
        monkeypatch.setattr(datagrams, "has_many", lambda: False)
    draw = np.random.default_rng(0)
    with OpenDatagrams(HERE, plain=receives == "plain") as here, OpenDatagrams(HERE) as there:
        sent = [
            draw.integers(0, 256, (count, width)).astype(np.uint8) for count, width in ((70, 138), (3, 1042), (1, 40))
        ]
        for frames in sent:
            there.send(here.address, frames)
        there.send(here.address, b"a word")
        came: dict[int, list[np.ndarray]] = {}
        until_s = time.monotonic() + HANG_S
        while sum(len(each) for parts in came.values() for each in parts) < 75 and time.monotonic() < until_s:
            here.wait(0.1)
            for sender, frames in here.receive():
                assert sender == there.address
                came.setdefault(frames.shape[1], []).append(frames.copy())
        for frames in sent:
            assert np.array_equal(np.concatenate(came[frames.shape[1]]), frames)
        assert came[6][0].tobytes() == b"a word"


def test_what_this_kernel_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "UDP_SEGMENT", 9999)
    monkeypatch.setattr(datagrams, "UDP_GRO", 9998)
    with OpenDatagrams(HERE) as here:
        assert not here.segments
        assert [each.split(":")[0] for each in here.notices] == [
            "this kernel has no UDP GSO",
            "this kernel has no UDP GRO",
        ]
    assert many.UDP_GRO == 104


def test_the_program_serves_counts_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("a key that is long enough")
    argv = [sys.executable, "-m", "ringwright", "switch", "--listen", "127.0.0.1:0", "--workers", "2", "--json"]
    process = subprocess.Popen(
        [*argv, "--key-file", str(key)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = parse(process.stderr.readline().removeprefix("switch at ").partition(": ")[0])
        clients = [SwitchClient(Membership(each, 2, session=1, key=read_key(key)), address) for each in range(2)]
        for got in together(clients, [np.full(5000, 3, np.float32)] * 2):
            assert (got == 6).all()
        for each in clients:
            each.close()
        assert main(["switch", "--listen", f"127.0.0.1:{address[1]}", "--for", "1s"]) == 5
        assert "the port is taken" in capsys.readouterr().err
        process.send_signal(signal.SIGTERM)
        told = json.loads(process.communicate(timeout=HANG_S)[0])
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    chunks = 2 * (20 + 20)  # each worker's 20 of exponents and 20 of values
    assert (told["schema"], told["added"], told["strangers"]) == ("ringwright.switch/1", chunks, 0)
    assert told["memory_bytes"] == clients[0].member.slots * (2 * (1024 + 2 + 4 + 1 + 4) + 2 * 5)


def test_the_loss_of_a_share_is_the_kernels(served: Any) -> None:
    with OpenDatagrams(HERE, plain=True) as here, OpenDatagrams(HERE, plain=True) as there:
        here.lose(0.5)
        came = 0
        for _ in range(20):
            there.send(here.address, np.zeros((20, 50), np.uint8))
            here.wait(0.05)
            came += sum(len(frames) for _, frames in here.receive())
        assert 120 < came < 280  # of 400: eight standard deviations
        with pytest.raises(UsageError):
            here.lose(1.0)
    assert serving.PORT == 0xBEE0


def test_a_switch_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a key of this test")
    with started(AskedSwitch("127.0.0.1:0", 2, 4, key)) as one:
        assert one.process.poll() is None
        assert one.process.stdin is not None
        one.process.stdin.close()
        assert one.process.wait(HANG_S) == 0
        one.process.stdin = None  # it is closed
    silent = AskedSwitch("127.0.0.1:0", 2, 4, tmp_path / "none")
    with pytest.raises(InfeasibleError, match="did not start") as refused, started(silent):
        pass
    assert "the key cannot be read" in refused.value.where
