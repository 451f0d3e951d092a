"""Live ranks through a switch that adds: the sums of the group where numbers are whole, a codec's error else, words where it fails."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from live_ranks import ranks
from ringwright.ground.errors import RanksFailedError, UsageError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    cases = ("whole_numbers:2", "rounded:2", "switch_died:2", "switch_refused:2")
    return ranks(tmp_path_factory.mktemp("live"), *cases)


def test_whole_numbers_train_as_they_do_without_a_switch(found: dict[str, list[Any]]) -> None:
    for answer in found["whole_numbers"]:
        assert answer == {"started": True, "given": True}


def test_what_int8_rounds_off_comes_with_the_next_gradient(found: dict[str, list[Any]]) -> None:
    for answer in found["rounded"]:
        assert 0.05 < answer["kept"] < 1.05  # of what one step may be off
        assert answer["kept"] * 4 < answer["dropped"] < 20


def test_a_switch_that_dies_is_named(found: dict[str, list[Any]]) -> None:
    for answer in found["switch_died"]:
        assert "the switch has not answered for" in answer
        assert "try: is it running at 127.0.0.1" in answer


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("silent", "no switch answers worker"),
        ("dtype", "a switch that adds takes float32; first.weight travels as bfloat16"),
        ("link", "an emulated link carries all-reduces of the group"),
        ("nothing", "nothing goes through the switch at 127.0.0.1:9"),
        ("key", "a key is for a switch that runs already"),
        ("other", "'ring' adds no gradients of live ranks"),
        ("knob", "switchml cannot have codec=zip: codec is block-exponent, int8, fixed-point"),
        ("differs", "rank 1 has another aggregate than rank 0"),
        ("nan", "a switch cannot add infinities and NaN"),
        ("ports", "the switch has fewer ports for workers than this number"),
    ],
)
def test_what_is_refused_has_its_reason(found: dict[str, list[Any]], case: str, words: str) -> None:
    for answer in found["switch_refused"]:
        assert words in answer[case]
        assert "try: " in answer[case]


def test_what_is_left_over_follows_its_parameter_into_another_plan() -> None:
    import torch

    from ringwright_lab.live.plan import BufferSlice
    from ringwright_lab.live.through_switch import SwitchSums

    class Halves:
        """A switch of one worker whose codec keeps half of a number."""

        worker: Any = None

        def all_reduce(self, vector: Any) -> Any:
            self.worker = SimpleNamespace(sent=lambda: vector / 2)
            return vector / 2

    def plan(places: dict[str, BufferSlice], operations: int, op: str = "all-reduce") -> Any:
        named = [SimpleNamespace(name="a", op=op, payloads=[SimpleNamespace(name="a")])] * operations
        workload = SimpleNamespace(policy=SimpleNamespace(label="made up"))
        span = lambda operation, piece: (0, 4 - operations)  # noqa: E731
        return SimpleNamespace(places=places, operations=named, span=span, workload=workload)

    sums = SwitchSums(Halves(), ExitStack(), None, error_feedback=True)  # type: ignore[arg-type]
    first = [torch.zeros(3)]
    sums.adopt(plan({"a": BufferSlice(0, 0, 1), "b": BufferSlice(0, 1, 2)}, 1), first)
    given = torch.tensor([2.0, 4.0, 8.0])
    sums.add((0, 0, 0), given)
    assert given.tolist() == [1, 2, 4]
    sums.adopt(plan({"b": BufferSlice(0, 0, 2), "a": BufferSlice(1, 0, 1)}, 2), [torch.zeros(2), torch.zeros(1)])
    given = torch.zeros(2)
    sums.add((1, 0, 0), given)
    assert given.tolist() == [1, 2]  # half of the 2 and the 4 that b has left
    with pytest.raises(UsageError, match="whole all-reduces; a is reduce-scatter"):
        sums.adopt(plan({"a": BufferSlice(0, 0, 1)}, 1, "reduce-scatter"), [torch.zeros(1)])


def test_a_switch_of_ours_that_ended_is_named_with_its_code() -> None:
    import torch

    from ringwright_lab.live.through_switch import SwitchSums

    def silent(_vector: Any) -> Any:
        raise RanksFailedError("the switch has not answered for 2.0 s", remedy="look")

    own = SimpleNamespace(process=SimpleNamespace(poll=lambda: -9))
    sums = SwitchSums(SimpleNamespace(all_reduce=silent), ExitStack(), own, error_feedback=False)  # type: ignore[arg-type]
    with pytest.raises(
        RanksFailedError, match="the switch that rank 0 started ended with -9; the switch has not answered"
    ):
        sums.add((0, 0, 0), torch.zeros(2))


def test_ranks_that_reach_the_first_at_several_addresses_have_no_switch_of_their_own() -> None:
    from ringwright_lab.live.joined_switch import joined
    from ringwright_lab.live.start import Team

    gathered = iter([["127.0.0.1", "10.0.0.1", "10.0.1.1"], [UsageError("another rank's")]])
    team = Team(
        0,
        3,
        None,
        {},
        {},
        {},
        lambda value: value,
        lambda value: next(gathered) if value is None or value == "127.0.0.1" else [value],
    )
    with pytest.raises(UsageError, match=r"at 10.0.0.1 and 10.0.1.1: which of them"):
        joined(team, "switchml", None, None, error_feedback=True, timeout_s=1.0)


def test_more_ranks_than_a_bitmap_has_bits() -> None:
    from ringwright_lab.live.joined_switch import joined
    from ringwright_lab.live.start import Team

    team = Team(0, 33, None, {}, {}, {}, lambda value: value, lambda value: [value])
    with pytest.raises(UsageError, match="32 bits, for 33 workers"):
        joined(team, "switchml", None, None, error_feedback=True, timeout_s=1.0)


def test_live_ranks_start_no_switch_whose_kernel_adds() -> None:
    from ringwright_lab.live.joined_switch import joined
    from ringwright_lab.live.start import Team

    team = Team(0, 2, None, {}, {}, {}, lambda value: value, lambda value: [value])
    with pytest.raises(UsageError, match="only where that runs already") as refused:
        joined(team, "switchml:xdp=true", None, None, error_feedback=True, timeout_s=1.0)
    assert "switch --xdp all" in refused.value.remedy
