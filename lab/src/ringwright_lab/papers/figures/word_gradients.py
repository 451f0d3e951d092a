"""Sparse gradients as training makes them: a small word model on the sample log, one part of it to each worker.

Each word foretells the next one through an embedding and a softmax. After some steps of plain gradient descent every worker keeps
the largest of its gradient's numbers, as pairs of index and value: what top-k compression sends.
"""

from __future__ import annotations

import gzip
import re
from functools import cache

import numpy as np

from ringwright.algorithms.innetwork.pair_tables import Pair
from ringwright.formats.sources.sample import sample

WIDTH, BATCH, STEPS, RATE = 16, 128, 5, 2.0
FIXED = 1 << 24  # of a value's integer: tables add whole numbers
WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")


def largest(workers: int, density: float) -> list[list[Pair]]:
    """Return each worker's pairs of the share ``density`` of its gradient's numbers that is largest, by rising index.

    A key is the index in as few bytes as it takes: keys of one to three bytes.
    """
    return [_pairs(gradient, density) for gradient in _gradients(workers)]


def _pairs(gradient: np.ndarray, density: float) -> list[Pair]:
    count = round(density * len(gradient))
    kept = np.sort(np.argpartition(np.abs(gradient), -count)[-count:])
    return [(_key(at), round(float(gradient[at]) * FIXED)) for at in kept.tolist()]


def _key(index: int) -> bytes:
    return index.to_bytes(max(1, (index.bit_length() + 7) // 8), "big")


@cache
def _gradients(workers: int) -> tuple[np.ndarray, ...]:
    """Return the workers' gradients of one step, float64 of shape (parameters,) each, after ``STEPS`` steps together."""
    words, kinds = _words()
    draw = np.random.default_rng(0)
    embedding, out = draw.normal(0, 0.1, (kinds, WIDTH)), draw.normal(0, 0.1, (WIDTH, kinds))
    parts = np.array_split(words, workers)
    for step in range(STEPS + 1):
        every = [_gradient(embedding, out, part[step * BATCH : (step + 1) * BATCH + 1]) for part in parts]
        if step < STEPS:
            embedding = embedding - RATE * np.mean([mine for mine, _ in every], axis=0)
            out = out - RATE * np.mean([mine for _, mine in every], axis=0)
    return tuple(np.concatenate((mine.ravel(), last.ravel())) for mine, last in every)


@cache
def _words() -> tuple[np.ndarray, int]:
    """Return the sample log's words as numbers, int64 of shape (words,), and how many different ones there are."""
    text = gzip.decompress(sample().read_bytes()).decode()
    _, number = np.unique(WORD.findall(text), return_inverse=True)
    return number.astype(np.int64), int(number.max()) + 1


def _gradient(embedding: np.ndarray, out: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of the mean cross entropy of each next word, of the two matrices' shapes."""
    # Sums by einsum come out alike on every machine; a library of linear algebra adds in an order of its own.
    here, following = words[:-1], words[1:]
    hidden = embedding[here]
    scores = np.einsum("bw,wv->bv", hidden, out)
    chance = np.exp(scores - scores.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    chance[np.arange(len(here)), following] -= 1
    chance /= len(here)
    of_embedding = np.zeros_like(embedding)
    np.add.at(of_embedding, here, np.einsum("bv,wv->bw", chance, out))
    return of_embedding, np.einsum("bw,bv->wv", hidden, chance)
