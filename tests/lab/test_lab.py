"""The lab: real namespaces, real TCP. What is asked of a link is measured on it; what is left behind is counted."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright_lab import network as lab
from ringwright_lab.network import leftovers, script, spec, switch, verdict
from ringwright_lab.network.counters import CounterSample
from ringwright_lab.network.network import LabNetwork

STAR, TWO_LEVEL, RING = "switch:4,rate=100Mb/s", "leaf-spine:4,spines=1,rate=100Mb/s", "ring:4,rate=100Mb/s"
SLOW = "switch:3,rate=20Mb/s"
PYTHON = [sys.executable, "-I", "-S", "-c"]

EXCHANGE = """
import os, socket, sys, threading, time
rank, addresses = int(os.environ["RANK"]), sys.argv[1:]
server = socket.create_server(("0.0.0.0", 6000))
def serve():
    while True:
        caller, _ = server.accept()
        caller.sendall(str(rank).encode() + b"\\n")
        caller.recv(1)
        caller.close()
threading.Thread(target=serve, daemon=True).start()
for number, address in enumerate(addresses):
    for _ in range(200):
        try:
            with socket.create_connection((address, 6000), timeout=5) as call:
                assert int(call.makefile().readline()) == number
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    else:
        sys.exit(1)
print("reached", len(addresses), flush=True)
sys.stdin.read()
"""
SINK = """
import socket
server = socket.create_server(("0.0.0.0", 6001))
print("ready", flush=True)
flow, _ = server.accept()
while flow.recv(1 << 20):
    pass
"""
SEND = """
import socket, sys, time
flow = socket.create_connection((sys.argv[1], 6001))
began = time.monotonic()
flow.sendall(bytes(int(sys.argv[2])))
flow.shutdown(socket.SHUT_WR)
flow.recv(1)
print(time.monotonic() - began)
"""
SEND_WHEN_TOLD = SEND.replace("began =", 'print("ready", flush=True); sys.stdin.readline(); began =')
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 6002))
print("ready", flush=True)
call, _ = server.accept()
call.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := call.recv(64):
    call.sendall(data)
"""
TURNS = """
import socket, sys, time
call = socket.create_connection((sys.argv[1], 6002))
call.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(int(sys.argv[2])):
    began = time.monotonic()
    call.sendall(b"x")
    call.recv(64)
    print(time.monotonic() - began)
"""
LOOP = """
import time
print("ready", flush=True)
last = time.monotonic()
while True:
    sum(range(2000))
    now = time.monotonic()
    print(now, flush=True)
    time.sleep(0.005)
"""


def why_not(*, rootless: bool) -> str:
    """Return why a lab cannot be made here, or nothing."""
    try:
        with lab.network("switch:2,rate=10Mb/s", rootless=rootless):
            return ""
    except InfeasibleError as error:
        return str(error)


@pytest.fixture(scope="module")
def ways() -> list[bool]:
    """The ways that work here: as root, in a user namespace."""
    reasons = {rootless: why_not(rootless=rootless) for rootless in ([False, True] if os.geteuid() == 0 else [True])}
    found = [rootless for rootless, reason in reasons.items() if not reason]
    if not found:
        pytest.skip(f"NO NETWORK NAMESPACES HERE: {reasons}")
    return found


@pytest.fixture
def rootless(ways: list[bool]) -> bool:
    return ways[0]


class Programs:
    """Starts programs in places and ends them."""

    def __init__(self, net: LabNetwork) -> None:
        self.net, self.running = net, []

    def start(self, rank: int, code: str, *words: object) -> subprocess.Popen[str]:
        command = [*self.net.places[rank].command, *PYTHON, code, *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, **self.net.environment(rank)}
        self.running.append(subprocess.Popen(command, text=True, env=environment, **pipes))
        return self.running[-1]

    def ready(self, rank: int, code: str) -> subprocess.Popen[str]:
        process = self.start(rank, code)
        assert process.stdout.readline().strip() == "ready"
        return process

    def transfer_s(self, src: int, dst: int, size_bytes: int) -> float:
        """Return what sending some bytes took, until the receiver had all of them."""
        self.ready(dst, SINK)
        out, complaint = self.start(src, SEND, self.net.places[dst].address, size_bytes).communicate(timeout=HANG_S)
        assert out, complaint
        return float(out)

    def transfer_from_zero_s(self, src: int, dst: int, size_bytes: int) -> float:
        """Return the same, the script's clock starting as the first byte leaves, however slowly programs start here."""
        self.ready(dst, SINK)
        sender = self.start(src, SEND_WHEN_TOLD, self.net.places[dst].address, size_bytes)
        assert sender.stdout.readline().strip() == "ready"
        self.net.start_faults()
        out, complaint = sender.communicate("go\n", timeout=HANG_S)
        assert out, complaint
        return float(out)

    def turns_s(self, src: int, dst: int, count: int) -> list[float]:
        """Return round-trip times."""
        self.ready(dst, ECHO)
        out, complaint = self.start(src, TURNS, self.net.places[dst].address, count).communicate(timeout=HANG_S)
        assert out, complaint
        return [float(line) for line in out.splitlines()]

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def make(rootless: bool) -> Iterator[Callable[..., tuple[LabNetwork, Programs]]]:
    from contextlib import ExitStack

    with ExitStack() as stack:

        def made(*asked: Any, **options: Any) -> tuple[LabNetwork, Programs]:
            net = stack.enter_context(lab.network(*asked, **{"rootless": rootless, **options}))
            programs = Programs(net)
            stack.callback(programs.close)
            return net, programs

        yield made


def namespaces() -> set[str]:
    """Return the network namespaces that any process lives in."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(path.readlink()))
        except OSError:
            continue
    return found


def ours() -> list[str]:
    """Return the daemons of this test's labs: those whose folder lies in its own runtime folder."""
    top = os.fsencode(leftovers.runtime())
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if top in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def own_runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a runtime folder of its own, so that labs of others do not count."""
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def goodput(programs: Any, size_bytes: int, expected: float) -> float:
    """Return the best rate in bytes/s of up to five transfers: other work on the machine can only take from it."""
    best = 0.0
    for _ in range(5):
        best = max(best, size_bytes / programs.transfer_s(0, 1, size_bytes))
        if best > 0.95 * expected:
            break
    return best


def eventually(what: Callable[[], bool], limit_s: float = HANG_S) -> bool:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if what():
            return True
        time.sleep(0.02)
    return what()


# Networks


@pytest.mark.lab
@pytest.mark.parametrize("asked", [STAR, TWO_LEVEL, RING, "mesh:3,rate=100Mb/s"])
@pytest.mark.parametrize("as_user", [False, True])
def test_every_rank_reaches_every_rank(asked: str, as_user: bool, ways: list[bool], make: Any) -> None:
    if as_user not in ways:
        pytest.skip("not this way here")
    tcp = "cubic" if as_user else "reno"
    net, programs = make(asked, rootless=as_user, tcp=tcp)
    addresses = [place.address for place in net.places]
    running = [programs.start(place.rank, EXCHANGE, *addresses) for place in net.places]
    for process in running:
        assert process.stdout.readline().strip() == f"reached {len(addresses)}", process.communicate()
    assert net.topology.n_ranks == len(net.places) == len(addresses)
    carried = net.counters()
    assert len(carried) == net.topology.n_links
    assert all(carried.values())


@pytest.mark.lab
def test_bytes_take_the_routes_of_the_topology(make: Any) -> None:
    net, programs = make(RING)
    programs.transfer_s(0, 1, 500_000)
    carried = net.counters()
    assert carried["rank0>rank1"] > 500_000
    assert carried["rank1>rank0"] < 100_000
    assert carried["rank2>rank3"] == 0


@pytest.mark.lab
@pytest.mark.parametrize("tcp", ["reno", "cubic"])
def test_a_link_has_its_rate(tcp: str, make: Any) -> None:
    net, programs = make(SLOW, tcp=tcp)
    assert goodput(programs, 2_400_000, 0.956 * 20e6 / 8) == pytest.approx(0.956 * 20e6 / 8, rel=0.10)
    assert net.limit().what == "wire", net.limit()


@pytest.mark.lab
def test_the_control_network_has_no_limits(make: Any) -> None:
    net, _ = make("switch:2,rate=8Mb/s", control=True)
    assert net.launcher is not None
    server = subprocess.Popen(
        [*net.control[1].command, *PYTHON, SINK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout.readline().strip() == "ready"
    command = [*net.launcher.command, *PYTHON, SEND, net.control[1].address, "20000000"]
    took_s = float(subprocess.run(command, capture_output=True, check=True, timeout=HANG_S).stdout)
    server.communicate(timeout=HANG_S)
    assert took_s < 19.0  # 20 s at the rate of the links
    assert max(net.counters().values()) < 10_000


@pytest.mark.lab
@pytest.mark.parametrize("as_user", [False, True])
def test_a_launcher_starts_ranks_from_inside(as_user: bool, ways: list[bool], make: Any) -> None:
    if as_user not in ways:
        pytest.skip("not this way here")
    net, _ = make("switch:2,rate=8Mb/s", control=True, rootless=as_user)
    for rank, hop in enumerate(net.hops):
        code = "import os, socket; print(socket.gethostname(), socket.gethostbyname(socket.gethostname()), os.getcwd())"
        command = [*net.launcher.command, *hop, *PYTHON, code]
        said = subprocess.run(command, capture_output=True, check=True, timeout=HANG_S, text=True).stdout
        assert said.split() == [f"rank{rank}", net.places[rank].address, str(Path.cwd())]


# Faults


@pytest.mark.lab
def test_rate(make: Any) -> None:
    net, programs = make(SLOW, ["link rank0 rate 25%"])
    net.start_faults()
    expected = 0.25 * 0.956 * 20e6 / 8
    assert goodput(programs, 600_000, expected) == pytest.approx(expected, rel=0.12)


@pytest.mark.lab
@pytest.mark.parametrize("asked", [SLOW, "ring:3,rate=20Mb/s"])
def test_dead(asked: str, make: Any) -> None:
    """1 s of transfer, dead for 0.5 s in the middle; TCP's timeouts may add as much again."""
    net, programs = make(asked, ["link rank0 dead from 0.3s for 0.5s"])
    took_s = programs.transfer_from_zero_s(0, 1, 2_400_000)
    assert took_s > 1.4
    events = [event for event in net.timeline if event["event"] == "fault"]
    assert [event["script_s"] for event in events] == [0.3, 0.8]
    assert all(event["late_s"] >= 0 for event in events)


@pytest.mark.lab
def test_one_direction_dead(make: Any) -> None:
    net, programs = make(SLOW, ["link switch>rank1 dead"])
    net.start_faults()
    programs.ready(1, SINK)
    before = net.counters()
    sender = programs.start(0, SEND, net.places[1].address, 1000)
    time.sleep(0.5)
    after = net.counters()
    assert sender.poll() is None
    assert after["switch>rank1"] == before["switch>rank1"]
    assert after["rank0>switch"] > before["rank0>switch"]
    assert net.dropped()["switch>rank1"] > 0


@pytest.mark.lab
def test_flap(make: Any) -> None:
    net, programs = make(SLOW, ["link rank0 flap 100ms every 400ms"], horizon_s=2.0, seed=3)
    assert programs.transfer_from_zero_s(0, 1, 2_400_000) > 1.15
    downs = [event for event in net.timeline if event["event"] == "fault" and "dead" in event["what"]]
    assert len(downs) >= 2
    assert [round(b["script_s"] - a["script_s"], 6) for a, b in pairwise(downs)] == [0.4] * (len(downs) - 1)


@pytest.mark.lab
@pytest.mark.parametrize("asked", [SLOW, "ring:3,rate=20Mb/s"])
def test_loss(asked: str, make: Any) -> None:
    link = "rank0>switch" if asked == SLOW else "rank0>rank1"
    net, programs = make(asked, [f"link {link} loss 3%"], seed=5)
    net.start_faults()
    programs.transfer_s(0, 1, 1_500_000)
    counts = net.switched()[link]
    expected = list(islice(switch.hits(0.03, f"5 {link} 2 loss"), 200))
    assert counts["lost"] == sum(1 for number in expected if number < counts["frames"])
    assert 0.01 < counts["lost"] / counts["frames"] < 0.06


@pytest.mark.lab
@pytest.mark.parametrize("as_user", [False, True])
def test_latency_and_jitter(as_user: bool, ways: list[bool], make: Any) -> None:
    if as_user not in ways:
        pytest.skip("not this way here")
    net, programs = make(SLOW, ["link rank1 latency 20ms", "link rank2 jitter 10ms"], rootless=as_user)
    net.start_faults()
    assert 0.040 <= min(programs.turns_s(0, 1, 10)) < 0.060
    shaky_s = programs.turns_s(0, 2, 20)
    assert max(shaky_s) - min(shaky_s) > 0.004
    assert statistics.median(shaky_s) > 0.003


@pytest.mark.lab
def test_latency_of_the_fabric_itself(make: Any) -> None:
    _, programs = make("switch:2,rate=20Mb/s,latency_s=5ms")
    assert 0.020 <= min(programs.turns_s(0, 1, 10)) < 0.035


@pytest.mark.lab
def test_reorder_and_ecn(make: Any) -> None:
    net, programs = make(SLOW, ["link rank0>switch reorder 2%", "link rank2>switch ecn 5%"])
    net.start_faults()
    programs.transfer_s(0, 1, 600_000)
    programs.transfer_s(2, 0, 600_000)
    counts = net.switched()
    assert counts["rank0>switch"]["reordered"] > 2
    assert counts["rank0>switch"]["lost"] == 0
    assert counts["rank2>switch"]["marked"] > 5


@pytest.mark.lab
def test_a_competing_flow(make: Any) -> None:
    net, _ = make(SLOW, ["flow 1>2 8Mb/s at 0.2s for 0.5s", "flow rank2>0 from 0.2s for 0.5s"])
    net.start_faults()
    time.sleep(1.1)
    carried = net.counters()
    assert 0.3e6 < carried["switch>rank2"] < 0.8e6
    assert 0.8e6 < carried["switch>rank0"] < 1.6e6
    assert not net.failure


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("congestion from all-to-all 64MiB on 0-2", {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}),
        ("congestion from all-reduce 64MiB on 0,2,3", {(0, 2), (2, 3), (3, 0)}),
        ("congestion from gather 1MiB", {(1, 0), (2, 0), (3, 0)}),
        ("congestion from send-recv 1MiB on 3,1", {(3, 1)}),
    ],
)
def test_congestion_is_a_flow_between_each_two_ranks_that_the_collective_joins(
    line: str, ends: set[tuple[int, int]]
) -> None:
    told = script.read(spec.read(STAR), ["flow 0>1 at 1s", line], horizon_s=10.0, seed=0)
    assert {(flow.src, flow.dst) for flow in told.flows[1:]} == ends
    assert [flow.number for flow in told.flows] == list(range(1 + len(ends)))
    assert told.outside == ("flow 0>1 at 1s",)  # congestion is simulated too
    assert [len(moment.starting) for moment in told.moments()] == [len(ends), 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("congestion from all-to-all 64MiB by pairwise", "by no algorithm"),
        ("congestion from scan 64MiB", "no flows that stand for scan"),
        ("congestion from all-to-all 64MiB on 0-9", "names no ranks of 0 to 3"),
        ("ecmp unlucky", "two ranks have one path"),
    ],
)
def test_what_the_lab_cannot_do_is_refused(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        script.read(spec.read(STAR), [line], horizon_s=10.0, seed=0)


@pytest.mark.lab
def test_congestion_fills_the_links_of_its_ranks(make: Any) -> None:
    net, _ = make(SLOW, ["congestion from send-recv 1MiB on 0,1"])
    net.start_faults()
    until = time.monotonic() + HANG_S
    while (carried := net.counters())["switch>rank1"] < 0.8e6:  # a third of a second at 20 Mb/s
        assert time.monotonic() < until
        time.sleep(0.1)
    assert carried["switch>rank2"] < 0.1e6
    assert not net.failure


@pytest.mark.lab
@pytest.mark.parametrize("as_user", [False, True])
def test_slow_stopped_and_killed_ranks(as_user: bool, ways: list[bool], make: Any) -> None:
    if as_user not in ways:
        pytest.skip("not this way here")
    faults = ["rank 0 slow 4x", "rank 1 stop at 0.2s for 0.4s", "rank 2 kill at 0.3s"]
    net, programs = make("switch:4,rate=20Mb/s", faults, rootless=as_user)
    running = [programs.ready(rank, LOOP) for rank in range(4)]
    net.start_faults()
    stopped: list[list[bool]] = [[] for _ in running]
    until = time.monotonic() + HANG_S
    # What signals did is seen in the processes: what they print, and when, says how busy the machine is.
    while not (True in stopped[1] and not stopped[1][-1] and running[2].poll() is not None and len(stopped[0]) > 100):
        assert time.monotonic() < until
        for rank in (0, 1, 3):
            stopped[rank].append(is_stopped(running[rank].pid))
        time.sleep(0.003)
    assert running[2].wait() == -signal.SIGKILL
    assert running[0].poll() is None
    assert running[1].poll() is None
    for process in running[:2] + running[3:]:
        process.kill()
        process.communicate()
    assert 0.3 < sum(stopped[0]) / len(stopped[0]) < 0.95  # three quarters of every 20 ms
    assert not stopped[1][0]
    assert sum(a != b for a, b in pairwise(stopped[1])) == 2  # once, for a while
    assert not any(stopped[3])


def is_stopped(pid: int) -> bool:
    """Say whether a process, or the one that it started in a namespace, was stopped by a signal."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        started = children.read_text().split()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state == "T" or any(is_stopped(int(child)) for child in started)


# Nothing stays behind


def start_cli(out: Path, *options: str, code: str = "import time; time.sleep(10000)") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ringwright", "lab", STAR, "--out", str(out), *options, "--", *PYTHON, code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of lines; every line has to be whole."""
    text = path.read_text() if path.exists() else ""
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def has_event(out: Path, event: str) -> bool:
    path = out / "timeline.jsonl"
    return path.exists() and f'"{event}"' in path.read_text()


@pytest.mark.lab
@pytest.mark.parametrize("as_user", [False, True])
def test_kill_9_leaves_nothing(as_user: bool, ways: list[bool], tmp_path: Path, own_runtime: Path) -> None:
    if as_user not in ways:
        pytest.skip("not this way here")
    before, interfaces = namespaces(), socket.if_nameindex()
    out = tmp_path / "capture"
    faults = ["--fault", "link rank1 loss 1%", "--fault", "flow 1>2", "--fault", "rank 2 slow 2x"]
    stray = "import os, time; os.fork() or os.setsid(); time.sleep(10000)"  # a grandchild in a session of its own
    process = start_cli(out, *faults, *(["--rootless"] if as_user else []), code=stray)
    assert eventually(lambda: has_event(out, "fault")), process.communicate()
    assert len(namespaces() - before) >= 5
    inside = namespaces() - before
    process.kill()
    process.communicate()
    assert eventually(lambda: not (inside & namespaces()))
    assert eventually(lambda: not ours())
    assert eventually(lambda: not list(own_runtime.iterdir())), list(own_runtime.rglob("*"))
    assert socket.if_nameindex() == interfaces
    assert leftovers.found() == []


@pytest.mark.lab
def test_the_next_lab_removes_what_a_killed_daemon_left(own_runtime: Path, rootless: bool) -> None:
    folder = own_runtime / "ringwright-lab" / "1-dead"
    folder.mkdir(parents=True)
    (folder / "about.json").write_text('{"pid": 1, "fabric": "switch:4"}')
    told = leftovers.found()
    assert [lab["is_alive"] for lab in told] == [False]
    with lab.network("switch:2,rate=10Mb/s", rootless=rootless):
        assert not folder.exists()
        assert [each["is_alive"] for each in leftovers.found()] == [True]
        assert leftovers.clean() == []
        assert len(leftovers.found()) == 1
    assert leftovers.found() == []
    assert not list(own_runtime.iterdir())


@pytest.mark.lab
def test_the_capture_is_complete_up_to_a_kill(ways: list[bool], tmp_path: Path) -> None:
    out = tmp_path / "capture"
    code = "import time; print('here', flush=True); time.sleep(10000)"
    process = start_cli(out, "--fault", "link rank3 rate 50% at 0.2s", "--seed", "7", code=code)
    assert eventually(lambda: has_event(out, "fault")), process.communicate()
    process.kill()
    process.communicate()
    assert [event["event"] for event in lines(out / "timeline.jsonl")] == [
        "network ready",
        *["rank started"] * 4,
        "script starts",
        "fault",
    ]
    assert lines(out / "counters.jsonl")
    head = json.loads((out / "lab.json").read_text())
    assert head["schema"] == "ringwright.lab/1"
    assert (head["seed"], head["tcp"], head["ranks"]) == (7, "reno", 4)
    assert "verdict" not in head
    assert all((out / f"rank-{rank}.out").read_text() == "here\n" for rank in range(4))


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_lab_cleanly(number: signal.Signals, ways: list[bool], tmp_path: Path, own_runtime: Path) -> None:
    process = start_cli(tmp_path / "capture")
    assert eventually(lambda: has_event(tmp_path / "capture", "script starts"))
    process.send_signal(number)
    process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert not ours()
    assert not list(own_runtime.iterdir())


# The command


@pytest.mark.lab
def test_the_verb(ways: list[bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys; print(os.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME']); sys.exit(int(os.environ['RANK']))"
    out = tmp_path / "capture"
    assert main(["lab", STAR, "--fault", "link rank3 jitter 1ms", "--out", str(out), "--", *PYTHON, code]) == 3
    text = capsys.readouterr().out
    assert text.startswith(f"real: {STAR}, 4 of 4 ranks ended by themselves")
    for part in ("TCP reno", "10.77.0.4", "rank3>switch", "outside the simulation's model", "Verdict"):
        assert part in text
    assert (out / "rank-2.out").read_text() == "10.77.0.1 eth0\n"
    found = json.loads((out / "lab.json").read_text())
    assert [each["code"] for each in found["exits"]] == [0, 1, 2, 3]
    assert found["limit"]["what"] == "unknown"  # nothing was sent
    assert main(["lab", STAR, "--out", str(out), "--", "true"]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.lab
def test_the_clock_waits_for_the_ranks(ways: list[bool], tmp_path: Path) -> None:
    out = tmp_path / "capture"
    code = "import time; time.sleep(0.6); print('all set', flush=True); time.sleep(0.5)"
    options = ["--ready", "all set", "--fault", "link rank1 rate 50% at 0.1s", "--out", str(out), "--", *PYTHON, code]
    assert main(["lab", STAR, *options]) == 0
    events = {event["event"]: event["t_mono_s"] for event in lines(out / "timeline.jsonl")}
    assert events["script starts"] - events["rank started"] > 0.5
    assert events["fault"] - events["script starts"] > 0.09


@pytest.mark.lab
def test_the_time_limit(ways: list[bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "capture"
    began_s = time.monotonic()
    assert main(["lab", STAR, "--timeout", "0.5s", "--out", str(out), "--json", "--", "sleep", "10000"]) == 5
    assert time.monotonic() - began_s < HANG_S
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ringwright.lab/1"
    assert all(each["is_late"] for each in found["exits"])


@pytest.mark.lab
def test_a_list_of_labs(capsys: pytest.CaptureFixture[str], rootless: bool) -> None:
    with lab.network("switch:2,rate=10Mb/s", rootless=rootless):
        assert main(["lab", "--list", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["labs"]
        assert [(each["is_alive"], each["fabric"]) for each in found] == [(True, "switch:2,rate=10Mb/s")]
    assert main(["lab", "--list"]) == 0
    assert capsys.readouterr().out == ""


# What is refused


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("switch:4", "Gbit/s"),
        ("switch:1,rate=100Mb/s", "2 to 64 ranks"),
        ("switch:100,rate=100Mb/s", "2 to 64 ranks"),
        ("leaf-spine:4,rate=100Mb/s", "more ways than one"),
        ("dgx-h100:2", "ranks and switches"),
        ("switch:4,rate=100Mb/s,backplane=200Mb/s", "share"),
        ("switch:4,rate=100Mb/s,sharp=true", "do not add"),
    ],
)
def test_fabrics_that_cannot_be_built(asked: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        spec.read(asked)
    assert error.value.remedy


@pytest.mark.parametrize(
    "line",
    [
        "flow 1>1",
        "flow 1>9",
        "flow 1>2 fast",
        "flow 1",
        "flow 1>2 at 2s to 1s",
        "link rank9 dead",
        "rank 1 jitter",
        "link rank1 kill at 1s",
        "link rank1 jitter",
        "link rank1 reorder 200%",
        "link rank1 explode",
        "rank 1 stop for",
    ],
)
def test_lines_that_are_not_understood(line: str) -> None:
    with pytest.raises(UsageError) as error:
        script.read(spec.read(STAR), [line], horizon_s=10.0, seed=0)
    assert error.value.where or error.value.remedy


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no congestion control"), lab.network(STAR, tcp="vegas"):
        pass
    assert main(["lab", "--out", str(tmp_path / "a")]) == 2
    assert main(["lab", STAR, "--out", str(tmp_path / "b")]) == 2


def test_a_machine_without_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InfeasibleError, match="nsenter") as error, lab.network(STAR):
        pass
    assert "apt-get install" in error.value.remedy


# One language of faults


def test_simulations_refuse_what_they_have_no_model_for() -> None:
    machine = fabric(STAR)
    outside = [
        "link rank1 jitter 1ms",
        "link rank1 reorder 1%",
        "link rank1 ecn 1%",
        "rank 1 stop at 1s",
        "rank 1 kill",
        "flow 1>2",
    ]
    for line in outside:
        with pytest.raises(UsageError, match="outside the simulation's model") as error:
            apply(machine, [line])
        assert line in error.value.where
    inside = ["link rank3 rate 20% at 1s", "rank 3 slow 2x", "link * loss 1%", "link random:1 flap 100ms every 1s"]
    found = script.read(spec.read(STAR), [*inside, *outside], horizon_s=3.0, seed=4)
    assert sorted(found.outside) == sorted(outside)
    simulated = apply(machine, inside, horizon_s=3.0, seed=4)
    alike = {row for row in found.rows if row.field in ("rate_factor", "compute_factor")}
    assert alike == {row for row in simulated.faults if row.field != "loss"}
    assert {row.target for row in found.rows if row.field == "loss"} == set(range(machine.n_links))


def test_ten_seeds_lose_ten_patterns() -> None:
    def pattern(seed: int) -> tuple[int, ...]:
        return tuple(islice(switch.hits(0.05, f"{seed} rank0>switch 2 loss"), 40))

    patterns = [pattern(seed) for seed in range(10)]
    assert len(set(patterns)) == 10
    assert patterns == [pattern(seed) for seed in range(10)]
    counted = switch.Chance(0.05, "0 rank0>switch 2 loss")
    assert tuple(number for number in range(patterns[0][-1] + 1) if counted) == patterns[0]
    assert 0.02 < 40 / patterns[0][-1] < 0.12
    assert not any(switch.Chance(0.0, "0") for _ in range(100))
    assert all(switch.Chance(1.0, "0") for _ in range(100))


def test_a_marked_header_adds_up() -> None:
    def total(header: bytes) -> int:
        words = sum(struct.unpack("!10H", header))
        return (words & 0xFFFF) + (words >> 16)

    for field in (0x02, 0x01, 0xB9):
        header = bytearray(
            struct.pack("!BBHHHBBH4s4s", 0x45, field, 40, 7, 0, 64, 6, 0, b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
        )
        header[10:12] = struct.pack("!H", ~total(bytes(header)) & 0xFFFF)
        frame = bytes(12) + b"\x08\x00" + bytes(header) + bytes(20)
        marked, done = switch.congestion_experienced(frame)
        assert done
        assert marked[15] == field | 3
        assert total(marked[14:34]) in (0xFFFF, 0)
        assert switch.congestion_experienced(marked) == (marked, False)
    assert switch.congestion_experienced(bytes(12) + b"\x08\x00\x45\x00" + bytes(38))[1] is False
    assert switch.congestion_experienced(bytes(12) + b"\x08\x06" + b"\x02" * 40)[1] is False


# What limited a run


def looks(count: int, fill: float, **machine: Any) -> list[CounterSample]:
    rate = 12.5e6
    return [
        CounterSample(
            0.1 * n,
            [int(fill * rate * 0.1 * n)],
            [0],
            [0],
            [rate],
            machine.get("disturbed", False),
            busy=machine.get("busy", 0.2),
            pressure=machine.get("pressure", 0.0),
            busiest=machine.get("busiest", 0.1),
            overruns=machine.get("overruns", 0),
            waited=machine.get("waited"),
            switched={"a": {"frames": 1000}},
        )
        for n in range(21)
    ]


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        (looks(20, 0.95), "wire"),
        (looks(20, 0.95, busy=1.0), "wire"),
        (looks(20, 0.4, disturbed=True), "wire"),
        (looks(20, 0.4, disturbed=True, busy=1.0), "cpu"),
        (looks(20, 0.4, pressure=0.9), "cpu"),
        (looks(20, 0.4, busiest=0.98), "cpu"),
        (
            looks(20, 0.4, disturbed=True, busy=1.0, pressure=1.0, waited=0.02),
            "wire",
        ),  # others are busy, we do not wait
        (looks(20, 0.4, waited=0.4), "cpu"),
        (looks(20, 0.95, overruns=5), "cpu"),
        (looks(20, 0.4), "unknown"),
        (looks(20, 0.0, busy=1.0), "unknown"),
        ([], "unknown"),
    ],
)
def test_limits(samples: list[CounterSample], what: str) -> None:
    found = verdict.judge(samples)
    assert found.what == what
    assert found.verdict.startswith("the wire" if what == "wire" else "none, CPU-bound" if what == "cpu" else "none")
    assert (found.cpu_share > 0.5) == (what == "cpu" and not found.overruns)


@pytest.mark.lab
def test_a_run_that_the_cores_limit_gives_no_result(make: Any) -> None:
    net, programs = make("switch:2,rate=9.9Gb/s")
    programs.ready(1, SINK)
    programs.start(0, SEND, net.places[1].address, 1 << 33)
    time.sleep(2.0)
    limit = net.limit()
    assert limit.what == "cpu", limit
    assert limit.verdict.startswith("none, CPU-bound")
    assert "at the CPU" in limit.why
