"""What one layer of a rank's forward pass is: its matrix products, what it moves, and how much goes through it."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.workloads.parallel import Parallel

ALONE = Parallel()


@dataclass(frozen=True)
class Gemm:
    """A product of (m x k) and (k x n), ``times`` over."""

    m: int
    n: int
    k: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Operations of all of them."""
        return 2 * self.m * self.n * self.k * self.times

    def for_inputs(self) -> Gemm:
        """Return the product that gives the gradient of its inputs."""
        return Gemm(self.m, self.k, self.n, self.times)

    def for_weights(self) -> Gemm:
        """Return the product that gives the gradient of its weights."""
        return Gemm(self.k, self.n, self.m, self.times)


@dataclass(frozen=True)
class LayerWork:
    """One layer's forward pass on one rank.

    ``kind`` is "matrix", "convolution", "experts", "router", "attention", "norm", "lookup", "logits", "patches" (of an image),
    "taps" or "scan" (of a state space), or "interaction" (of pairs of vectors); ``moved_bytes`` is what
    is read and written when nothing stays in a cache; ``parameters`` are those this rank holds of it, ``cut`` and ``expert``
    as in ``parts.Layer``. ``scores`` is the product of queries and keys where a mask spares nothing.
    """

    name: str
    kind: str
    gemms: tuple[Gemm, ...] = ()
    attention_flops: int = 0
    moved_bytes: int = 0
    parameters: int = 0
    cut: str = ""
    expert: bool = False
    scores: Gemm | None = None

    @property
    def flops(self) -> int:
        """Operations in all."""
        return self.attention_flops + sum(gemm.flops for gemm in self.gemms)


@dataclass(frozen=True)
class Load:
    """How much goes through a layer: sequences (or images) and tokens of each, the rank's axes, bytes of an element."""

    sequences: int
    sequence: int = 1
    parallel: Parallel = ALONE
    mode: str = "training"
    width_bytes: int = 2

    @property
    def tokens(self) -> int:
        """Tokens that a tensor parallel group has."""
        return self.sequences if self.mode == "decode" else self.sequences * self.sequence // self.parallel.cp

    @property
    def own_tokens(self) -> int:
        """Tokens of one rank, where sequence parallelism shares them out."""
        return -(-self.tokens // (self.parallel.tp if self.parallel.sp else 1))

    @property
    def sent_tokens(self) -> int:
        """Tokens whose hidden state one rank sends to the next stage."""
        return self.tokens // self.parallel.tp if self.parallel.sg else self.own_tokens
