"""What holds of costs of communication beside computation on any GPU, whatever was fitted: more load never makes anything faster."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from itertools import product as every
from random import Random

import pytest

from ringwright.costs.contention.movers import MOVERS, asked, bus_s, payload_rate, traffic_rate
from ringwright.costs.contention.multiprocessors import BOOST_HZ, Multiprocessors, multiprocessors
from ringwright.costs.contention.pieces import ALONG, cut, efficiency, pieces_s
from ringwright.costs.contention.products import KERNELS, Product, chosen, product_s
from ringwright.costs.contention.sharing import Asker, beside, beside_bus, given, together
from ringwright.costs.contention.starts import STEPS, chain_s, graph_s
from ringwright.ground.errors import UsageError
from ringwright_lab.judges.passes import TensorPass, fused, passes_s, traffic
from ringwright_lab.judges.triggers import (
    Carried,
    by_bus,
    by_driver,
    by_events_s,
    by_flags_s,
    by_kernel,
    one_after_another_s,
)

H100, H200 = multiprocessors("h100"), multiprocessors("h200")
PRODUCTS = [Product(*sides) for sides in ((1024, 4096, 4096), (8192, 8192, 1024), (8192, 8192, 8192), (300, 777, 5000))]
NEARLY = 1 + 1e-9


def drawn(seed: int, count: int = 40) -> list[Product]:
    """Return products of all sizes, some of one number."""
    random = Random(seed)
    return [Product(*(int(2 ** random.uniform(0, 14)) for _ in range(3))) for _ in range(count)]


# ------------------------------------------------------------------------------------------------------------------ products
@pytest.mark.parametrize("asked_for", drawn(1), ids=str)
def test_held_multiprocessors_and_slow_clocks_never_speed_a_product_up(asked_for: Product) -> None:
    times = [product_s(asked_for, H100, held) for held in (0, 1, 2, 3, 5, 8, 16, 31, 64, 131)]
    assert all(fewer <= more for fewer, more in pairwise(times))
    assert product_s(asked_for, H100.at(BOOST_HZ)) <= product_s(asked_for, H100)
    assert product_s(asked_for, H200) <= product_s(asked_for, H100)


@pytest.mark.parametrize("side", ["m", "n", "k"])
def test_a_larger_product_never_takes_less(side: str) -> None:
    for start in PRODUCTS:
        times = [product_s(replace(start, **{side: length}), H100) for length in range(64, 4096, 61)]
        assert all(smaller <= larger * NEARLY for smaller, larger in pairwise(times))


@pytest.mark.parametrize("asked_for", drawn(2), ids=str)
def test_no_product_beats_the_tensor_cores_or_the_memory(asked_for: Product) -> None:
    flop = 2 * asked_for.m * asked_for.n * asked_for.k
    for kernel in (None, *KERNELS):
        took = product_s(asked_for, H100, 0, kernel)
        assert flop / took < 132 * 4096 * H100.clock_hz
        assert (asked_for.operand_bytes + asked_for.result_bytes) / took < H100.memory


@pytest.mark.parametrize(("asked_for", "along"), list(every(drawn(3, 15), ALONG)), ids=str)
def test_pieces_make_up_the_whole_and_are_never_faster(asked_for: Product, along: str) -> None:
    side = getattr(asked_for, along)
    for count in (1, 2, 3, 7):
        if count > side:
            continue
        parts = cut(asked_for, along, count)  # type: ignore[arg-type]
        assert sum(getattr(part, along) for part in parts) == side
        assert sum(part.m * part.n * part.k for part in parts) == asked_for.m * asked_for.n * asked_for.k
        assert [part.accumulates for part in parts] == [along == "k" and number > 0 for number in range(count)]
        assert pieces_s(asked_for, along, count, H100) >= product_s(asked_for, H100)  # type: ignore[arg-type]
        assert 0 < efficiency(asked_for, along, count, H100) <= 1  # type: ignore[arg-type]


def test_pieces_that_fit_their_tiles_better_are_not_counted_as_a_gain() -> None:
    """The library would have found as good a kernel for the whole: halves of 336 and 337 columns waste less of their tiles."""
    whole = Product(14877, 673, 14018)
    assert sum(product_s(part, H100) for part in cut(whole, "n", 2)) < product_s(whole, H100)
    assert pieces_s(whole, "n", 2, H100) == product_s(whole, H100)


def test_cutting_the_summed_side_costs_most_and_shows_the_result_that_is_read_again() -> None:
    whole = Product(8192, 8192, 1024)
    assert efficiency(whole, "m", 16, H100) > 3 * efficiency(whole, "k", 16, H100)
    again = replace(whole, k=64, accumulates=True)
    assert product_s(again, H100) > 2 * whole.m * whole.n * 2 / H100.memory


# -------------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("job", MOVERS)
def test_more_multiprocessors_move_more_and_never_more_than_they_ask_or_the_memory_has(job: str) -> None:
    for on in (H100, H200, H100.at(BOOST_HZ)):
        rates = [traffic_rate(job, sms, on) for sms in range(on.sms + 1)]
        assert rates[0] == 0
        assert all(fewer < more for fewer, more in pairwise(rates))
        assert all(rate <= min(asked(job, sms, on), on.memory) for sms, rate in enumerate(rates))
    assert payload_rate(job, 8, H100) == traffic_rate(job, 8, H100) / MOVERS[job].touches  # type: ignore[index]


def test_few_multiprocessors_do_not_notice_a_faster_memory_and_all_do() -> None:
    assert payload_rate("copy", 4, H200) == pytest.approx(payload_rate("copy", 4, H100), rel=0.01)
    assert payload_rate("copy", 132, H200) / payload_rate("copy", 132, H100) == pytest.approx(4.8 / 3.35, rel=0.05)


@pytest.mark.parametrize("seed", range(40))
def test_the_memory_gives_all_it_has_to_those_who_ask_and_nobody_more(seed: int) -> None:
    random = Random(seed)
    askers = []
    for _ in range(random.randint(0, 5)):
        most = random.choice((0.0, random.uniform(0, 4)))
        askers.append(Asker(most * random.uniform(1, 3), most, random.uniform(0.2, 2)))
    capacity = random.uniform(0.1, 6)
    rates = given(capacity, askers)
    assert all(rate <= each.most * NEARLY for rate, each in zip(rates, askers, strict=True))
    assert sum(rates) == pytest.approx(min(capacity, sum(each.most for each in askers)))
    more = given(capacity * 1.3, askers)
    assert all(before <= after * NEARLY for before, after in zip(rates, more, strict=True))


def test_equal_kernels_share_by_their_multiprocessors() -> None:
    few, many = together(("copy", 33), ("copy", 99), H100.at(BOOST_HZ))
    assert many / few == pytest.approx(3, rel=0.01)
    alone, _ = together(("copy", 33), ("copy", 0), H100)
    assert alone == pytest.approx(payload_rate("copy", 33, H100))
    with pytest.raises(UsageError, match="133 multiprocessors"):
        together(("copy", 33), ("copy", 100), H100)


# ------------------------------------------------------------------------------------------------------------------ arbitration
@pytest.mark.parametrize(
    ("asked_for", "job"), list(every([*PRODUCTS, *drawn(4, 8)], ["hold", "copy", "add", "read"])), ids=str
)
def test_a_neighbour_on_more_multiprocessors_never_speeds_the_product_up(asked_for: Product, job: str) -> None:
    both = [beside(asked_for, job, sms, H100) for sms in (0, 1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 100)]
    assert all(fewer.product_s <= more.product_s * NEARLY for fewer, more in pairwise(both))
    assert all(fewer.neighbour <= more.neighbour * NEARLY for fewer, more in pairwise(both))
    assert all(each.product_s >= each.product_alone_s for each in both)
    assert all(each.neighbour <= each.neighbour_alone * NEARLY for each in both)
    assert both[0].slowdown == 1.0


@pytest.mark.parametrize(("asked_for", "sms"), list(every(PRODUCTS, (4, 24, 32, 64))), ids=str)
def test_more_memory_never_slows_either_side(asked_for: Product, sms: int) -> None:
    for job in ("copy", "add"):
        both = [beside(asked_for, job, sms, replace(H100, memory=tera * 1e12)) for tera in (1, 2, 3.35, 4, 4.8, 8, 20)]
        assert all(less.product_s * NEARLY >= more.product_s for less, more in pairwise(both))
        assert all(less.neighbour <= more.neighbour * NEARLY for less, more in pairwise(both))
        held = beside(asked_for, "hold", sms, replace(H100, memory=20e12))
        assert both[-1].product_s == pytest.approx(held.product_s, rel=1e-6)  # all that is left of it: multiprocessors


@pytest.mark.parametrize("asked_for", PRODUCTS, ids=str)
def test_both_sides_together_never_move_more_than_the_memory_carries(asked_for: Product) -> None:
    for job, sms in every(("copy", "add"), (8, 32, 64)):
        both = beside(asked_for, job, sms, H100)
        moved = asked_for.traffic(chosen(asked_for, H100), streaming=True) / both.product_s
        assert moved + both.neighbour * MOVERS[job].touches <= H100.memory  # type: ignore[index]


def test_a_copy_over_the_bus_holds_nothing() -> None:
    for asked_for in PRODUCTS:
        assert product_s(asked_for, H100) < beside_bus(asked_for, H100) < 1.1 * product_s(asked_for, H100)
    assert bus_s(0) == 0
    assert bus_s(1 << 20) < bus_s(1 << 20, both=True) < 2 * bus_s(1 << 20)


# ---------------------------------------------------------------------------------------------------------- triggered and fused
@pytest.mark.parametrize("pieces", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("copy_s", [0.0, 0.1, 1.0, 7.0])
def test_overlap_hides_at_most_the_shorter_side(pieces: int, copy_s: float) -> None:
    for when in (0.0, 0.6, 1.0):
        copy = Carried(copy_s, gets_in=when)
        for took in (by_events_s(1.0, pieces, copy), by_flags_s(1.0, pieces, copy)):
            assert max(1.0, copy_s) <= took * NEARLY
            assert took <= one_after_another_s(1.0, copy) * NEARLY
    assert by_flags_s(1.0, pieces, Carried(copy_s)) == pytest.approx(by_events_s(1.0, pieces, Carried(copy_s)))
    assert by_flags_s(1.0, pieces, Carried(copy_s)) == pytest.approx(max(1 + copy_s / pieces, copy_s + 1 / pieces))


def test_one_piece_hides_nothing_and_a_kernel_gets_in_a_piece_late() -> None:
    late = Carried(1.0, gets_in=1.0)
    assert by_events_s(1.0, 1, late) == pytest.approx(2.0)
    assert by_events_s(1.0, 2, late) == pytest.approx(2.0)  # measured: 1400 us where one after another takes 1398
    assert by_events_s(1.0, 4, late) == pytest.approx(1.5)
    assert by_events_s(1.0, 2, Carried(1.0)) == pytest.approx(1.5)


def test_whoever_is_slowed_takes_longer() -> None:
    for pieces, copy_s in every((1, 2, 5, 16), (0.3, 1.0, 3.0)):
        plain, late = Carried(copy_s), Carried(copy_s, 1.5, 1.2, gets_in=0.5)
        assert by_flags_s(1.0, pieces, plain) < by_flags_s(1.0, pieces, Carried(copy_s, 1.5))
        assert by_events_s(1.0, pieces, plain) <= by_events_s(1.0, pieces, Carried(copy_s, 1.5)) * NEARLY
        assert by_events_s(1.0, pieces, plain) <= by_events_s(1.0, pieces, late) * NEARLY
    assert by_events_s(1.0, 4, by_bus(0.4)) < by_events_s(1.0, 4, by_driver(0.4))


def test_a_kernel_that_carries_takes_its_figures_from_both_sides() -> None:
    piece = Product(2048, 8192, 4096)
    copy = by_kernel(piece, 1e-3, 24, H100)
    both = beside(piece, "copy", 24, H100)
    assert copy.product_slowed == both.slowdown > 1.2
    assert copy.slowed == pytest.approx(both.neighbour_alone / both.neighbour)
    assert 0 < copy.gets_in <= 1


ADAM = [
    TensorPass(("m", "g"), ("m",)),
    TensorPass(("v", "g"), ("v",)),
    TensorPass(("m", "v"), ("u",)),
    TensorPass(("p", "u"), ("p",)),
]


def test_fusing_keeps_what_must_be_kept_and_nothing_else() -> None:
    one = fused(ADAM)
    assert (one.reads, one.writes) == (("m", "g", "v", "p"), ("m", "v", "p"))
    ring = [TensorPass(("x", "y"), ("out",)), TensorPass(("out",), ("sent",))]
    assert fused(ring).writes == ("sent",)
    assert fused(ring, kept=("out",)).writes == ("out", "sent")


def test_traffic_counts_tensors_and_what_the_cache_has_is_free() -> None:
    cache = H100.cache_bytes
    assert traffic([fused(ADAM)], 1 << 28, cache) == 7 << 28
    assert traffic(ADAM, 1 << 28, cache) == 12 << 28
    assert traffic(ADAM, 1 << 24, cache) == 9 << 24  # g, v and u are still there; m is not
    assert traffic(ADAM, 0, cache) == 0
    for size in range(0, 1 << 27, 1 << 22):
        assert passes_s([fused(ADAM)], size, H100) < passes_s(ADAM, size, H100)
        assert passes_s(ADAM, size, H200) <= passes_s(ADAM, size, H100)
        assert traffic(ADAM, size, cache) <= traffic(ADAM, size, 0)


def test_chains_add_up_and_the_slower_of_device_and_host_counts() -> None:
    assert chain_s(["kernel"] * 3) == pytest.approx(3 * chain_s(["kernel"]))
    for step in STEPS:
        assert chain_s([step], 4096) <= chain_s([step], 4096, queued=False)
        assert chain_s([step], 4096) <= chain_s([step], 1 << 20)
    assert chain_s(["kernel", "copy-d2h"]) > chain_s(["kernel"]) + chain_s(["copy-d2h"])  # handed over and back
    assert graph_s(100) < 100 * chain_s(["kernel"])
    assert graph_s(5) < graph_s(5, forked=True)


# ---------------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: multiprocessors("a100"), "was not measured"),
        (lambda: multiprocessors("h100", 0.0), "no clock runs"),
        (lambda: Product(0, 1, 1), "no product is"),
        (lambda: cut(PRODUCTS[0], "q", 2), "no side 'q'"),  # type: ignore[arg-type]
        (lambda: cut(PRODUCTS[0], "m", 1025), "no 1025 pieces"),
        (lambda: payload_rate("sing", 1, H100), "does 'sing'"),
        (lambda: payload_rate("copy", 133, H100), "no 133 multiprocessors"),
        (lambda: beside(PRODUCTS[0], "copy", 132, H100), "132 of 132"),
        (lambda: given(-1.0, []), "below 0"),
        (lambda: bus_s(-1), "-1 bytes"),
        (lambda: Carried(1.0, 0.5), "slows by 0.5"),
        (lambda: Carried(1.0, gets_in=2.0), "in at 2.0"),
        (lambda: by_flags_s(1.0, 0, Carried(1.0)), "in 0 pieces"),
        (lambda: by_events_s(-1.0, 1, Carried(1.0)), "-1.0 s"),
        (lambda: chain_s(["jump"]), "no such step: jump"),  # type: ignore[list-item]
        (lambda: graph_s(0), "no graph has 0"),
        (lambda: fused([]), "nothing to fuse"),
        (lambda: traffic(ADAM, -1, 0), "-1 bytes"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type_instead(call: object, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        call()  # type: ignore[operator]
    assert refused.value.remedy


def test_the_clock_is_part_of_what_is_asked() -> None:
    assert Multiprocessors("own", 100, 1e12).clock_share == pytest.approx(1.4 / 1.98)
    assert payload_rate("copy", 4, H100) / payload_rate("copy", 4, H100.at(BOOST_HZ)) == pytest.approx(
        1.4 / 1.98, rel=0.01
    )
