"""Programs of several sizes as a folder of files from which a runtime picks by size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.formats.settings.msccl_config import msccl_config
from ringwright.model.threadblocks.msccl_load import MscclLoad
from ringwright.search import runtime_files, study
from ringwright.search.question import SynthesisSpec

pytestmark = pytest.mark.once

ASKED = ["synthesise", "all-gather", "--fabric", "torus:2x2", "-b", "64K", "-e", "16M", "-f", "16"]


@pytest.fixture(autouse=True, scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path_factory.mktemp("programs")))
        yield


def test_the_windows_of_a_folder_leave_no_gap_and_do_not_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "best"
    words = [*ASKED, "--method", "forest", "--to", "msccl-xml", "-o", str(folder)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "forest:even=on" in told, "what the format cannot carry gives way to what it can"
    assert f"MSCCL_ALGO_DIR={folder / 'programs'}" in told.replace("\n  ", "")
    files = sorted((folder / "programs").iterdir(), key=lambda path: int(_attributes(path)["minBytes"]))
    windows = [(int(_attributes(path)["minBytes"]), int(_attributes(path)["maxBytes"])) for path in files]
    assert windows[0][0] == 0
    assert windows[-1][1] == 1 << 48
    for (_, high), (low, _) in pairwise(windows):
        assert high == low - 1
        assert low in (1 << 20, 1 << 24)
    loads = ET.parse(folder / "msccl-config.xml").getroot().findall("load")
    assert [each.get("path") for each in loads] == [str(path.resolve()) for path in files]
    assert [int(each.get("minbytes") or -1) for each in loads] == [low for low, _ in windows]
    assert [each.get("maxBytes") for each in loads] == [str(high + 1) for _, high in windows[:-1]] + [None]
    for path in files:
        assert main(["verify", str(path)]) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def _attributes(path: Path) -> dict[str, str]:
    return dict(ET.parse(path).getroot().attrib)


def test_mscclpp_plans_say_their_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    words = ["synthesise", "all-reduce", "--fabric", "switch:4", "-b", "64K", "-e", "1M", "-f", "16", "--alone"]
    assert main([*words, "--method", "p2,sccl", "--to", "mscclpp-json", "-o", str(folder)]) == 0
    plans = [json.loads(path.read_text()) for path in (folder / "programs").iterdir()]
    windows = sorted((plan["min_message_size"], plan["max_message_size"]) for plan in plans)
    assert windows[0][0] == 0
    assert windows[-1][1] == runtime_files.LARGEST
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(windows))
    assert not (folder / "msccl-config.xml").exists()


def test_neighbours_with_one_program_are_one_region() -> None:
    question = SynthesisSpec("broadcast", fabric("ring:4"))
    result = study.synthesise(question, [1 << 20, 1 << 21, 1 << 22], "sccl", rivals=False)
    files = runtime_files.regions(result, "msccl-xml")
    whole = {runtime_files._file(each, "msccl-xml", (0, 0)) for each in result.programs.values()}
    assert len(files) == len(whole)
    assert (files[0].low, files[-1].high) == (0, 0)


def test_a_rival_is_written_where_it_is_faster_than_all_that_was_found() -> None:
    question = SynthesisSpec("all-reduce", fabric("ring:4"))
    result = study.synthesise(question, [1 << 10, 1 << 12], "p2")
    assert result.rivals[0].ratio is not None
    assert result.rivals[0].ratio < 1, "another algorithm is faster at 1 KiB"
    files = runtime_files.regions(result, "msccl-xml")
    assert files[0].algorithm in {row.algorithm for row in result.rivals}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*ASKED, "--alone", "--to", "goal", "-o", "x"], "does not say which sizes it is for"),
        ([*ASKED, "--alone", "--to", "msccl-xml"], "no file is named"),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_a_path_is_escaped() -> None:
    text = msccl_config([MscclLoad('a"&<b>.xml', 0, 0, "LL")])
    (load,) = ET.fromstring(text)
    assert load.attrib == {"path": 'a"&<b>.xml', "minbytes": "0", "minBytes": "0", "proto": "LL"}
