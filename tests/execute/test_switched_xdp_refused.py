"""Where the kernel cannot add, that is said before anything starts, in words of their own and with what to do."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.execute.switched.xdp import compiling, loaded, ports
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright_lab import network as lab
from ringwright_lab.bench import BenchSpec
from ringwright_lab.network import bypass, script, spec

pytestmark = pytest.mark.once
COMMAND = ["switch", "--xdp", "all", "--listen", "127.0.0.1:0", "--for", "1s"]


def test_a_machine_without_the_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(COMMAND) == 5
    said = capsys.readouterr().err
    assert "no XDP: clang, which compiles for the kernel, is missing" in said
    assert "apt-get install clang" in said
    assert "a program on a socket" in said


def test_a_compiler_that_cannot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "clang"
    fake.write_text("#!/bin/sh\necho 'error: unknown target triple bpf' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(
        InfeasibleError, match="no XDP: the compiler failed: error: unknown target triple bpf"
    ) as refused:
        compiling.image()
    assert refused.value.where == str(fake)


def test_a_machine_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "LIBRARY", "libbpf-of-nobody.so.1")
    with pytest.raises(InfeasibleError, match=r"no XDP: libbpf-of-nobody\.so\.1, which hands programs") as refused:
        loaded.LoadedProgram(b"", {})
    assert "apt-get install libbpf1" in refused.value.remedy


def test_the_kernels_own_words() -> None:
    for number, words in (
        (errno.EPERM, "does not let this user"),
        (errno.ENOSYS, "loads no programs"),
        (errno.EINVAL, "refuses the program"),
    ):
        error = loaded.refusal(number, "back-edge from insn 7 to 3")
        assert error.what.startswith("no XDP: ")
        assert words in error.what
        assert bool(error.where) == (number == errno.EINVAL)


def test_a_program_that_is_none() -> None:
    try:
        loaded.LoadedProgram(b"no object file", {})
    except InfeasibleError as error:
        assert any(words in error.what for words in ("the program cannot be read", "is missing"))  # noqa: PT017


@pytest.mark.skipif(not shutil.which("unshare") or not shutil.which("clang"), reason="unshare and clang are needed")
def test_root_of_a_user_namespace_alone_is_not_enough() -> None:
    argv = ["unshare", "--user", "--map-root-user", sys.executable, "-m", "ringwright", *COMMAND]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 5
    assert "no XDP: " in done.stderr
    assert "does not let this user load a program" in done.stderr or "is missing" in done.stderr


def test_loopback_has_no_driver_with_xdp() -> None:
    number = ports.number("lo")
    assert ports.features(number) in (0, None)
    assert "lo" not in ports.able()
    assert ports.features(1 << 30) is None
    with pytest.raises(UsageError, match="no port 'nowhere0' here") as refused:
        ports.number("nowhere0")
    assert "lo" in refused.value.remedy
    assert socket.if_nametoindex("lo") == number


def test_a_benchmark_needs_a_lab_whose_links_are_whole() -> None:
    with pytest.raises(UsageError, match="loopback has none") as refused:
        _ = BenchSpec("all-reduce", 2, [4096], algorithms=["ring", "switchml:xdp=true"]).through_switch
    assert "--lab" in refused.value.remedy
    for line, words, remedy in (
        ("link rank1 loss 1%", "does not go through links that lose or delay", "loss=0.01"),
        ("link switch>rank1 rate 50% at 1s", "passes the rate of its link by", "rank0>switch"),
        ("flow 0>1 10Mb/s at 1s", "does not queue behind a competing flow", "without xdp"),
    ):
        with (
            pytest.raises(UsageError, match=words) as refused,
            lab.network("switch:2,rate=1Gb/s", [line], adds=True, xdp=True),
        ):
            pass
        assert refused.value.where
        assert remedy in refused.value.remedy


def test_links_that_are_slower_on_the_way_down_are_refused() -> None:
    top = fabric("switch:2,rate=1Gb/s")
    down = [link for link in range(top.n_links) if int(top.src[link]) >= top.n_ranks]
    rates = top.rate.copy()
    rates[down[0]] /= 2
    slow = spec.read(replace(top, rate=rates))
    with pytest.raises(UsageError, match="passes the rate of its link by") as refused:
        bypass.check_shown(slow, script.read(slow, [], horizon_s=1.0, seed=0), ())
    assert refused.value.where == slow.link_name(down[0])
    built = spec.read(top)
    bypass.check_shown(built, script.read(built, ["link rank0>switch rate 50% at 1s"], horizon_s=2.0, seed=0), ())
