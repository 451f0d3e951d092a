"""Environment variables for NCCL: written for a release, read back, taken by a real shell, and refused where a release knows better."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringwright.cli import main
from ringwright.costs.nccl import OPS, PROTOCOLS, releases
from ringwright.costs.nccl.environment import EVERY_OP, NcclEnvironment, algorithms_of
from ringwright.costs.nccl.names import spelled
from ringwright.formats.settings.nccl_environment import (
    nccl_environment,
    nccl_environment_shell,
    parse_nccl_environment,
    read_nccl_environment,
    variables,
)
from ringwright.ground.errors import InputError, UsageError

pytestmark = pytest.mark.once

MIXED = NcclEnvironment(
    "2.27",
    {EVERY_OP: ("ring", "collnet_direct"), "all-reduce": ("tree", "nvls_tree")},
    {EVERY_OP: ("simple",), "all-reduce": ("ll128", "simple")},
    4,
    32,
    8 << 20,
    {"NCCL_IB_QPS_PER_CONNECTION": "4", "RCCL_MSCCL_ENABLE": "0", "NCCL_SOCKET_IFNAME": "^docker,lo"},
)


@st.composite
def environments(draw: st.DrawFn) -> NcclEnvironment:
    """Draw lists of a release; those of a single operation keep ring and Simple, so that something is always left."""
    release = draw(st.sampled_from(releases()))
    per_op = release >= "2.24" and len(release) >= 6

    def lists(every: tuple[str, ...], keep: str) -> dict[str, tuple[str, ...]]:
        ops = draw(st.lists(st.sampled_from(OPS), unique=True)) if per_op else []
        some = st.lists(st.sampled_from(every), unique=True, max_size=3)
        return {op: tuple(dict.fromkeys([keep, *draw(some)])) for op in [EVERY_OP, *ops]}

    channels = sorted(draw(st.tuples(st.integers(1, 32), st.integers(1, 32))))
    return NcclEnvironment(
        release, lists(algorithms_of(release), "ring"), lists(PROTOCOLS, "simple"), *channels, draw(st.just(1 << 22))
    )


@given(environments())
@settings(max_examples=40)
def test_what_is_set_comes_back(environment: NcclEnvironment) -> None:
    for write in (nccl_environment, nccl_environment_shell):
        assert parse_nccl_environment(write(environment).decode()) == environment


def test_the_lines_of_a_file_for_docker_and_of_a_shell() -> None:
    assert nccl_environment(MIXED).decode() == (
        "# NCCL 2.27\nNCCL_ALGO=ring,collnetdirect;allreduce:tree,nvlstree\nNCCL_PROTO=simple;allreduce:ll128,simple\n"
        "NCCL_MIN_CTAS=4\nNCCL_MAX_CTAS=32\nNCCL_BUFFSIZE=8388608\n"
        "NCCL_IB_QPS_PER_CONNECTION=4\nRCCL_MSCCL_ENABLE=0\nNCCL_SOCKET_IFNAME=^docker,lo\n"
    )
    script = nccl_environment_shell(MIXED).decode() + "env"
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={}).stdout
    assert dict(variables(MIXED)).items() <= dict(line.split("=", 1) for line in told.splitlines()).items()
    for text in (nccl_environment(MIXED), nccl_environment_shell(MIXED)):
        assert parse_nccl_environment(text.decode()) == MIXED


def test_a_release_has_its_own_words() -> None:
    old = NcclEnvironment("2.12", {EVERY_OP: ("collnet_direct",)}, min_channels=2)
    assert nccl_environment(old).decode() == "# NCCL 2.12\nNCCL_ALGO=collnet\nNCCL_MIN_NCHANNELS=2\n"
    assert parse_nccl_environment(nccl_environment(old).decode()) == old
    assert spelled("collnet_direct", "2.14") == "collnetdirect"
    text = "# NCCL 2.23\nNCCL_ALGO=^Tree,PAT\nNCCL_PROTO=^LL128\nTOKEN=abc\n"
    read = parse_nccl_environment(text)
    assert read.algorithms == {EVERY_OP: ("ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree")}
    assert read.of("all-reduce")[1] == ("ll", "simple")
    assert not read.others
    assert read.of("broadcast") == read.of("all-reduce")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"release": "2.23", "algorithms": {"all-reduce": ("ring",)}}, "one list for all"),
        ({"release": "2.22", "algorithms": {EVERY_OP: ("pat",)}}, "takes no list pat"),
        ({"release": "2.99"}, "no NCCL cost constants"),
        ({"algorithms": {"all-gather": ("tree",)}}, "nothing is left for all-gather: tree does not do all-gather"),
        ({"algorithms": {"all-reduce": ("nvls",)}, "protocols": {"all-reduce": ("ll",)}}, "Simple only"),
        ({"algorithms": {"all-to-all": ("ring",)}}, "for all-to-all"),
        ({"algorithms": {EVERY_OP: ()}}, "of nothing"),
        ({"algorithms": {EVERY_OP: ("ring", "ring")}}, "takes no list"),
        ({"algorithms": {EVERY_OP: ("ring",)}, "protocols": {"all-reduce": ("ll",)}}, "the other has none"),
        ({"min_channels": 9, "max_channels": 8}, "9 to 8 channels"),
        ({"max_channels": 65}, "65 channels"),
        ({"buffer_bytes": 0}, "buffer of 0"),
        ({"others": {"PATH": "x"}}, "cannot be set here"),
        ({"others": {"NCCL_DEBUG": "INFO\nX=1"}}, "cannot be set here"),
        ({"others": {"NCCL_ALGO": "ring"}}, "cannot be set here"),
        ({"algorithms": {EVERY_OP: ("ring",)}, "others": {"NCCL_TUNER_PLUGIN": "x"}}, "asks no tuner"),
    ],
)
def test_what_a_release_does_not_take_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        NcclEnvironment(**{"release": "2.27", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NCCL_ALGO=ring\n", "for which release"),
        ("# NCCL 2.27\nNCCL_ALGO=ring;tree\n", "should begin with a collective"),
        ("# NCCL 2.27\nNCCL_ALGO=alltoall:ring\n", "should begin with a collective"),
        ("# NCCL 2.27\nNCCL_ALGO=bine\n", "none of tree"),
        ("# NCCL 2.27\nNCCL_PROTO=ll,\n", "none of ll"),
        ("# NCCL 2.27\nNCCL_PROTO=^ll,ll128,simple\n", "of nothing"),
        ("# NCCL 2.27\nNCCL_BUFFSIZE=4M\n", "no whole number"),
        ("# NCCL 2.27\nexport NCCL_ALGO='ring\n", "does not end"),
        ("# NCCL 2.20\nNCCL_ALGO=allreduce:ring\n", "one list for all"),
    ],
)
def test_a_broken_file_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        parse_nccl_environment(text, "e")
    assert caught.value.where.startswith("e")


@given(st.text(max_size=120))
@settings(max_examples=40)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_nccl_environment(f"NCCL_ALGO={text}\nexport {text}", release="2.27")
    except InputError:
        return


def test_export_writes_what_the_knobs_force(tmp_path: Path) -> None:
    common = ["export", "all-reduce", "--fabric", "dgx-h100:2", "--force", "-o", str(tmp_path / "e")]
    forced = "nccl-2-4@2.27:algorithm=tree:protocol=ll128:channels=16:buffer_bytes=8388608"
    for kind in ("nccl-env", "nccl-env-sh"):
        assert main([*common, "--to", kind, "--algorithm", forced]) == 0
        assert read_nccl_environment(tmp_path / "e") == NcclEnvironment(
            "2.27", {"all-reduce": ("tree",)}, {"all-reduce": ("ll128",)}, 16, 16, 8 << 20
        )
    assert main([*common, "--to", "nccl-env", "--algorithm", "nccl-2-4@2.20:algorithm=ring"]) == 0
    assert read_nccl_environment(tmp_path / "e") == NcclEnvironment("2.20", {EVERY_OP: ("ring",)})
    assert main([*common, "--to", "nccl-env", "--algorithm", "ring"]) == 2
