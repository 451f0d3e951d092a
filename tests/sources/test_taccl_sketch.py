"""TACCL sketches: the published ones as they are, and what makes none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.formats.sources.programs.taccl_sketch import parse_sketch, read_sketch
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once  # takes nothing from compiled loops

GOOD: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {"strategy": "none"},
    "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}},
    "symmetry_offsets": [[8, 16]],
    "hyperparameters": {"input_chunkup": 1},
}


@needs_shared_data
def test_all_published_sketches_are_read() -> None:
    files = sorted(real("real/taccl-inputs").glob("sk*.json"))
    assert len(files) == 11
    for path in files:
        sketch = read_sketch(path)
        assert sketch.hosts == int(path.stem.rpartition("-n")[2][0])
    dgx2 = read_sketch(real("real/taccl-inputs/sk1-dgx2-n2.json"))
    assert dgx2.relays[3] == (2, 3)
    assert dgx2.ordered
    assert dgx2.policies == ("uc-min",)
    assert dgx2.symmetry == ((2, 16), (16, 32))
    assert dgx2.chunks == 2
    alone = read_sketch(real("real/taccl-inputs/sk-ndv2-n1-cUp6.json"))  # without an internode_sketch
    assert (alone.hosts, alone.chunks, alone.receivers(8)) == (1, 6, {})


def test_words_stand_for_connections() -> None:
    direct = parse_sketch(
        json.dumps(GOOD | {"internode_sketch": {"strategy": "relay", "internode_conn": "direct-map"}})
    )
    assert direct.receivers(3) == {0: (0,), 1: (1,), 2: (2,)}
    full = parse_sketch(
        json.dumps(GOOD | {"internode_sketch": {"strategy": "relay", "internode_conn": "fully-connected"}})
    )
    assert full.receivers(2) == {0: (0, 1), 1: (0, 1)}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nnodes": 0}, "nnodes"),
        ({"nnodes": True}, "nnodes"),
        ({"intranode_sketch": {"strategy": "best"}}, "strategy: best is none of"),
        ({"intranode_sketch": {"strategy": "switch", "switches": [[0, 1]]}}, "one each"),
        (
            {"intranode_sketch": {"strategy": "switch", "switches": [[0, 0]], "switch_hyperedge_strategy": ["uc-min"]}},
            "once",
        ),
        ({"internode_sketch": {}}, "internode_sketch strategy"),
        ({"internode_sketch": {"strategy": "relay", "internode_conn": {}}}, "joins no GPUs"),
        ({"internode_sketch": {"strategy": "relay", "internode_conn": {"x": [1]}}}, "'x' is no GPU"),
        ({"internode_sketch": {"strategy": "relay", "internode_conn": {"0": [99999]}}}, "lists no GPUs"),
        ({"symmetry_offsets": [[3, 16]]}, "no turn by 3"),
        ({"symmetry_offsets": [[8]]}, "no pair"),
        ({"hyperparameters": {"input_chunkup": 1e9}}, "input_chunkup"),
        ({"hyperparameters": []}, "is no object"),
    ],
)
def test_what_makes_no_sketch_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_sketch(json.dumps(GOOD | changed))


@pytest.mark.parametrize("text", ["", "[", "[]", "nan", "{" * 5000, '"a"', '{"nnodes": ' + "9" * 5000 + "}"])
def test_hostile_texts(text: str) -> None:
    with pytest.raises(InputError):
        parse_sketch(text)


def test_a_file_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_sketch(tmp_path / "none.json")
    (tmp_path / "large.json").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match="larger than"):
        read_sketch(tmp_path / "large.json")
