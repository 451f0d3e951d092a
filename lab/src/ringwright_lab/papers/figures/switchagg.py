"""SwitchAgg's figures: pairs through the tables of a switch, and what its links carry."""

from __future__ import annotations

import numpy as np

from ringwright.algorithms.innetwork.pair_tables import Memory, Pair, expected_pairs, sent_bytes, through, totals
from ringwright.fabrics import fabric
from ringwright_lab.papers.figures.collectives import taken_us
from ringwright_lab.papers.figures.loads import busiest_s
from ringwright_lab.papers.figures.word_gradients import largest

SWITCH = "switch:8,rate=10Gb/s,latency_s=1us,sharp=true"  # ports of 10 Gb/s
DATA = 8 << 20  # bytes of pairs of each server
CHILDREN, KEY, VALUE = 4, 8, 8  # bytes of a key and of a value
BUCKET = KEY + VALUE
INDEX_BYTES = (1, 2, 3)  # classes of keys that are indices in as few bytes as they take


def stream(pairs: int, keys: int, exponent: float = 0.0, seed: int = 1) -> list[list[Pair]]:
    """Return the pairs of the children of a switch; key i is as frequent as 1 / (i + 1)^exponent."""
    draw = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, keys + 1) ** exponent
    drawn = draw.choice(keys, pairs, p=weight / weight.sum())
    values = draw.integers(-1000, 1000, pairs)
    every = [(int(key).to_bytes(KEY, "big"), int(value)) for key, value in zip(drawn, values, strict=True)]
    return [every[at::CHILDREN] for at in range(CHILDREN)]


def ratio(pairs: int, keys: int, front: int, back: int = 0, exponent: float = 0.0, *, hashed: bool = True) -> float:
    """Return the pairs that leave a switch over those that come, with so many buckets on the chip and behind it."""
    memory = Memory(front * BUCKET, back * BUCKET, (KEY,), VALUE, 0 if hashed else None)
    return len(through(memory, stream(pairs, keys, exponent))) / pairs


def over_formula(pairs: int, keys: int, room: int) -> float:
    """Return the pairs that leave over P (1 - M/K) + M."""
    return ratio(pairs, keys, room) * pairs / expected_pairs(pairs, keys, room)


def plateau(pairs: int, keys: int) -> float:
    """Return the largest less the smallest ratio over rooms from K on, with a bucket for each key."""
    taken = [ratio(pairs, keys, keys * times, hashed=False) for times in (1, 2, 3)]
    return max(taken) - min(taken)


def second_level(pairs: int, keys: int, front: int, back: int) -> float:
    """Return the ratio with a table behind the chip over that without, keys by Zipf's law."""
    return ratio(pairs, keys, front, back, 1.0) / ratio(pairs, keys, front, 0, 1.0)


def wrong_keys(pairs: int, keys: int, front: int, back: int, orders: int) -> float:
    """Return how many keys have another sum behind two levels of switches than without, over several hashes."""
    wrong = 0
    for seed in range(orders):
        children = stream(pairs, keys, seed=seed)
        memory = Memory(front * BUCKET, back * BUCKET, (KEY,), VALUE, seed)
        behind = through(memory, [through(memory, children[:2]), through(memory, children[2:])])
        plain = totals(pair for child in children for pair in child)
        have = totals(behind)
        wrong += sum(have.get(key) != plain.get(key) for key in {*have, *plain})
    return float(wrong)


def sparse_bytes(density: float, numbers: int, room: int) -> float:
    """Return the bytes to the sink of four workers' sparse gradients over those of the union of their indices."""
    draw = np.random.default_rng(7)
    children = []
    for _ in range(CHILDREN):
        at = draw.choice(numbers, round(density * numbers), replace=False)
        children.append([(int(each).to_bytes(KEY, "big"), int(value)) for each, value in zip(at, at + 1, strict=True)])
    union = len({key for child in children for key, _ in child})
    out = through(Memory(room * BUCKET, 0, (KEY,), VALUE), children)
    return sent_bytes(out, VALUE) / (union * (KEY + VALUE + 2))


def trained_overlap(workers: int, density: float) -> float:
    """Return the indices in the union of trained gradients' largest numbers over those that all workers send."""
    children = largest(workers, density)
    return len({key for child in children for key, _ in child}) / sum(map(len, children))


def trained_bytes(workers: int, density: float, front: int, back: int) -> float:
    """Return the bytes that leave a switch of so many bytes of tables over those of the union, for trained gradients."""
    children = largest(workers, density)
    out = through(Memory(front, back, INDEX_BYTES, VALUE), children)
    return sent_bytes(out, VALUE) / sent_bytes(totals(pair for child in children for pair in child).items(), VALUE)


def trained_wrong(workers: int, density: float, front: int, back: int) -> float:
    """Return how many indices have another sum behind two levels of switches than without, for trained gradients."""
    children, memory = largest(workers, density), Memory(front, back, INDEX_BYTES, VALUE)
    half = workers // 2
    have = totals(through(memory, [through(memory, children[:half]), through(memory, children[half:])]))
    plain = totals(pair for child in children for pair in child)
    return float(sum(have.get(key) != plain.get(key) for key in {*have, *plain}))


def fewer_bytes(tables: int, algorithm: str = "switchagg") -> float:
    """Return how many times fewer bytes the busiest link carries with tables of a size than direct to the root."""
    machine = fabric(SWITCH)
    mine = busiest_s("reduce", machine, DATA, f"{algorithm}:tables={tables}")
    return busiest_s("reduce", machine, DATA, "linear") / mine


def faster(tables: int, algorithm: str = "switchagg") -> float:
    """Return the same of simulated times."""
    machine = fabric(SWITCH)
    return taken_us("reduce", machine, DATA, "linear") / taken_us(
        "reduce", machine, DATA, f"{algorithm}:tables={tables}"
    )
