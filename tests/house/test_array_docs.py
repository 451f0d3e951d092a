"""What the nouns' docstrings tell of their arrays is what comes back (that all tell is held by test_house)."""

from __future__ import annotations

import numpy as np
import pytest

import ringwright
from ringwright.model.program import Op, explicit

pytestmark = pytest.mark.once


def test_the_nouns_return_what_they_tell() -> None:
    collective = ringwright.Collective("all-gather", range(16), 1 << 20)
    machine = ringwright.fabric("dgx-h100:2")
    program = ringwright.algorithm("ring")(collective, machine)
    src, dst = np.array([0, 3, 5]), np.array([9, 3, 6])
    starts, links = machine.routes(src, dst)
    block = explicit(Op.SEND, [0, 1], [1, 2], [0, 0])
    slots = np.arange(4)
    found = {
        "block_bytes": (collective.block_bytes, (16,)),
        "link_ids": (machine.link_ids(src, dst), src.shape),
        "starts": (starts, (4,)),
        "links": (links, (int(starts[-1]),)),
        "memberships": (machine.memberships[0], (machine.n_links + 1,)),
        "bytes_of": (program.layout.bytes_of(slots), slots.shape),
        "message_bytes": (program.layout.message_bytes(slots, 2), slots.shape),
        "arrays": (block.arrays()[0], (block.count,)),
    }
    assert {name: (each.dtype, each.shape) for name, (each, _) in found.items()} == {
        name: (np.dtype(np.int64), shape) for name, (_, shape) in found.items()
    }
