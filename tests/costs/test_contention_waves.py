"""Turns of tiles beside held multiprocessors: what was measured, and what no measurement may break."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ringwright.costs.contention.waves import TileKernel, gets_in, queued_turns, room, turns
from ringwright.ground.errors import UsageError

SMS = 132
WIDE, TALL = TileKernel(128, 256), TileKernel(128, 320)
SHAPES = (
    (1024, 4096),
    (2048, 4096),
    (8192, 4096),
    (8192, 8192),
    (8192, 7168),
    (1000, 1000),
    (64, 128),
    (1, 1),
    (16384, 8192),
)


@pytest.mark.parametrize(
    ("kernel", "m", "n", "held", "expected"),
    [
        (WIDE, 8192, 4096, 0, 8),  # 1024 tiles on 132 multiprocessors
        (WIDE, 8192, 4096, 1, 9),  # measured: 1.15 times as long
        (WIDE, 8192, 4096, 8, 10),  # 1.27
        (WIDE, 8192, 4096, 24, 11),  # 1.38
        (WIDE, 8192, 4096, 32, 12),  # 1.50
        (WIDE, 2048, 4096, 0, 2),
        (WIDE, 2048, 4096, 1, 2),  # 1.01
        (WIDE, 2048, 4096, 4, 4),  # 1.96: clusters that come late still have two tiles each
        (WIDE, 1024, 4096, 2, 1),  # 1.01: 64 clusters fit on 130 multiprocessors
        (WIDE, 1024, 4096, 8, 2),  # 1.87
        (TALL, 8192, 8192, 0, 13),
        (TALL, 8192, 8192, 8, 15),  # 1.17
        (TALL, 8192, 8192, 32, 19),  # 1.49
        (TileKernel(192, 192, 1, 124), 8192, 8192, 8, 15),  # planned for 124, single blocks: nothing is lost
        (TileKernel(192, 192, 1, 124), 8192, 8192, 0, 15),
    ],
)
def test_turns_are_those_that_were_measured(kernel: TileKernel, m: int, n: int, held: int, expected: int) -> None:
    assert turns(kernel, m, n, SMS, held) == expected


@pytest.mark.parametrize("cluster", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_held_multiprocessors_never_save_a_turn(shape: tuple[int, int], cluster: int) -> None:
    kernel = TileKernel(128, 192, cluster)
    taken = [turns(kernel, *shape, SMS, held) for held in range(SMS)]
    assert all(fewer <= more for fewer, more in pairwise(taken))
    assert taken[0] == -(-kernel.tiles(*shape) // SMS) or cluster > 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_turn_is_lost_to_arithmetic(shape: tuple[int, int]) -> None:
    """All tiles are worked off, and by nobody twice: turns times room covers them, and one turn less would not, where none is held."""
    tiles = WIDE.tiles(*shape)
    for held in (0, 1, 8, 60):
        assert turns(WIDE, *shape, SMS, held) * room(SMS, held, 2) * 2 >= tiles
    assert (turns(WIDE, *shape, SMS) - 1) * (SMS // 2) * 2 < tiles


def test_a_larger_result_never_takes_fewer_turns() -> None:
    for held in (0, 3, 32):
        taken = [turns(WIDE, m, 1024, SMS, held) for m in range(64, 8192, 64)]
        assert all(smaller <= larger for smaller, larger in pairwise(taken))


def test_a_kernel_with_a_block_a_tile_only_gets_fewer_at_once() -> None:
    assert [queued_turns(4096, SMS, held, 2) for held in (0, 4, 8, 16, 32)] == [16, 16, 17, 18, 21]


def test_another_kernel_gets_in_where_multiprocessors_are_left_or_a_last_turn_is_not_full() -> None:
    assert gets_in(WIDE, 1024, 4096, SMS, 4) == 0.0  # 128 blocks
    assert gets_in(WIDE, 1024, 4096, SMS, 5) == 1.0
    assert gets_in(WIDE, 4096, 4096, SMS, 5) == pytest.approx(3 / 4)
    assert gets_in(WIDE, 132 * 128, 256, SMS, 1) == 1.0


@pytest.mark.parametrize("held", [-1, 132, 200])
def test_more_than_there_are_cannot_be_held(held: int) -> None:
    with pytest.raises(UsageError, match="multiprocessors are held"):
        turns(WIDE, 1024, 1024, SMS, held)


@pytest.mark.parametrize("sides", [(0, 128, 2, 0), (128, -1, 2, 0), (128, 128, 0, 0), (128, 128, 2, -1)])
def test_a_kernel_has_tiles(sides: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="no kernel has tiles"):
        TileKernel(*sides)
