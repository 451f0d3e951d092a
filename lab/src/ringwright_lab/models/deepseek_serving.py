"""DeepSeek-V3 as it is served: own code in the structure of its public inference program, every rank with a share of the model.

Vocabulary, heads, hidden widths and experts are shared out over the ranks of ``tp``. Sums are taken by all-reduce: after the
embedding, after each attention, after each dense MLP, and twice in each mixture (routed experts, shared experts). The logits
of the last token are gathered. What is exchanged does not depend on the routing: a rank applies each of its experts to every
token, with weight zero where the expert was not chosen, so that shapes are known beforehand.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import linear, rms_norm, silu, softmax

from ringwright.ground.errors import UsageError
from ringwright_lab.models.spec import ExperimentSpec

SCALE = 2.5  # of the routed experts' sum
SHARED_OUT = ("vocabulary", "heads", "intermediate", "expert_intermediate", "experts")


@dataclass
class Shares:
    """Which share of each weight is ours, and the sums over all shares."""

    spec: ExperimentSpec
    group: dist.ProcessGroup | None
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        """Raise UsageError where the model cannot be shared out evenly."""
        uneven = [name for name in SHARED_OUT if self.spec.dims[name] % self.size]
        if uneven:
            raise UsageError(
                f"{self.size} ranks cannot share {self.spec.dims[uneven[0]]} {uneven[0]} evenly", remedy="fewer ranks"
            )

    def weight(self, name: str, *shape: int, cut: int | None = None) -> torch.Tensor:
        """Return our share, along dimension ``cut``, of a random weight that is the same however many ranks there are."""
        dtype = getattr(torch, self.spec.dtype)
        if self.spec.fake is not None:
            local = [length // (self.size if at == cut else 1) for at, length in enumerate(shape)]
            return torch.empty(local, dtype=dtype)
        source = torch.Generator().manual_seed(zlib.crc32(f"{self.spec.seed} {name}".encode()))
        drawn = torch.randn(shape, generator=source) / math.sqrt(shape[-1])
        if cut is not None:
            drawn = drawn.chunk(self.size, cut)[self.rank]
        return drawn.to(dtype).contiguous()

    def sum(self, part: torch.Tensor) -> torch.Tensor:
        """Add the ranks' parts up, in place."""
        if self.size > 1:
            dist.all_reduce(part, group=self.group)
        return part

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Put the ranks' parts side by side along the last dimension."""
        if self.size == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)


def turned(x: torch.Tensor, start: int) -> torch.Tensor:
    """Return x (batch, tokens, heads, width) with its pairs turned by the angles of their positions, from ``start`` on."""
    width = x.shape[-1]
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(start, start + x.shape[1], dtype=torch.float32), speeds)[None, :, None]
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    pair = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(pair, dim=-1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Multi-head latent attention; the cache holds the latent vector and the turned key, which all heads share."""

    def __init__(self, shares: Shares, name: str) -> None:
        super().__init__()
        dims = shares.spec.dims
        self.shares, self.dims = shares, dims
        hidden, heads, nope, rope, value = (dims[word] for word in ("hidden", "heads", "nope", "rope", "value"))
        self.q_down = shares.weight(f"{name} q_down", dims["q_rank"], hidden)
        self.q_up = shares.weight(f"{name} q_up", heads * (nope + rope), dims["q_rank"], cut=0)
        self.kv_down = shares.weight(f"{name} kv_down", dims["kv_rank"] + rope, hidden)
        self.kv_up = shares.weight(f"{name} kv_up", heads * (nope + value), dims["kv_rank"], cut=0)
        self.out = shares.weight(f"{name} o", hidden, heads * value, cut=1)
        self.cache: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """Return the summed output for x (batch, tokens, hidden) whose first token has position ``start``."""
        dims, heads = self.dims, self.dims["heads"] // self.shares.size
        q = linear(rms_norm(linear(x, self.q_down), (dims["q_rank"],)), self.q_up).unflatten(-1, (heads, -1))
        q_plain, q_turned = q.split([dims["nope"], dims["rope"]], dim=-1)
        latent, key = linear(x, self.kv_down).split([dims["kv_rank"], dims["rope"]], dim=-1)
        self._keep(rms_norm(latent, (dims["kv_rank"],)), turned(key.unsqueeze(2), start).squeeze(2))
        latent, key = self.cache
        up = self.kv_up.unflatten(0, (heads, -1))
        up_key, up_value = up.split([dims["nope"], dims["value"]], dim=1)
        absorbed = torch.einsum("bthn,hnc->bthc", q_plain, up_key)
        scores = torch.einsum("bthc,bsc->bths", absorbed, latent)
        scores = scores + torch.einsum("bthr,bsr->bths", turned(q_turned, start), key)
        scores = scores / math.sqrt(dims["nope"] + dims["rope"])
        ahead = torch.arange(key.shape[1])[None, :] > torch.arange(start, start + x.shape[1])[:, None]
        weights = softmax(scores.masked_fill(ahead[None, :, None], -torch.inf).float(), dim=-1).to(x.dtype)
        seen = torch.einsum("bths,bsc->bthc", weights, latent)
        return self.shares.sum(linear(torch.einsum("bthc,hvc->bthv", seen, up_value).flatten(2), self.out))

    def _keep(self, latent: torch.Tensor, key: torch.Tensor) -> None:
        fresh = [latent, key]
        self.cache = [torch.cat(pair, dim=1) for pair in zip(self.cache, fresh, strict=True)] if self.cache else fresh


class Dense(nn.Module):
    """A gated MLP, its hidden width shared out."""

    def __init__(self, shares: Shares, name: str, width: int) -> None:
        super().__init__()
        hidden = shares.spec.dims["hidden"]
        self.shares = shares
        self.gate = shares.weight(f"{name} gate", width, hidden, cut=0)
        self.up = shares.weight(f"{name} up", width, hidden, cut=0)
        self.down = shares.weight(f"{name} down", hidden, width, cut=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the summed output."""
        return self.shares.sum(linear(silu(linear(x, self.gate)) * linear(x, self.up), self.down))


class Mixture(nn.Module):
    """Routed experts, shared out whole, and the shared experts as one dense MLP."""

    def __init__(self, shares: Shares, name: str) -> None:
        super().__init__()
        dims = shares.spec.dims
        hidden, width, experts = dims["hidden"], dims["expert_intermediate"], dims["experts"]
        self.shares, self.dims = shares, dims
        self.router = shares.weight(f"{name} router", experts, hidden)
        self.gate = shares.weight(f"{name} gates", experts, width, hidden, cut=0)
        self.up = shares.weight(f"{name} ups", experts, width, hidden, cut=0)
        self.down = shares.weight(f"{name} downs", experts, hidden, width, cut=0)
        self.shared = Dense(shares, f"{name} shared", dims["shared"] * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the chosen experts, and the shared ones."""
        tokens = x.flatten(0, 1)
        each = self.dims["experts"] // self.shares.size
        mine = self._chosen(tokens)[:, self.shares.rank * each : (self.shares.rank + 1) * each].to(x.dtype)
        middle = silu(torch.einsum("th,ewh->etw", tokens, self.gate)) * torch.einsum("th,ewh->etw", tokens, self.up)
        mixed = torch.einsum("etw,ehw->th", middle * mine.t().unsqueeze(-1), self.down)
        return (self.shares.sum(mixed) + self.shared(tokens)).view_as(x)

    def _chosen(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the weight of every expert for every token, (tokens, experts); zero where it was not chosen."""
        dims = self.dims
        scores = linear(tokens, self.router).float().sigmoid()
        grouped = scores.unflatten(-1, (dims["groups"], -1))
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(dims["active_groups"], dim=-1).indices
        open_ = torch.zeros_like(grouped[..., 0]).scatter(-1, best, 1.0).unsqueeze(-1)
        chosen = (grouped * open_).flatten(-2).topk(dims["active"], dim=-1).indices
        kept = torch.zeros_like(scores).scatter(-1, chosen, 1.0) * scores
        return SCALE * kept / kept.sum(-1, keepdim=True)


class DecoderLayer(nn.Module):
    """One layer: attention, then a dense MLP or a mixture."""

    def __init__(self, shares: Shares, at: int) -> None:
        super().__init__()
        dims = shares.spec.dims
        self.width = (dims["hidden"],)
        self.attention = Attention(shares, f"{at}")
        is_dense = at < dims["dense_layers"]
        self.mlp = Dense(shares, f"{at}", dims["intermediate"]) if is_dense else Mixture(shares, f"{at}")

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """Return x (batch, tokens, hidden) after this layer; its first token has position ``start``."""
        x = x + self.attention(rms_norm(x, self.width), start)
        return x + self.mlp(rms_norm(x, self.width))


class Server(nn.Module):
    """The whole model; it may be asked again with the tokens that follow."""

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        dims = shares.spec.dims
        self.shares, self.position = shares, 0
        self.words = shares.weight("words", dims["vocabulary"], dims["hidden"], cut=0)
        self.head = shares.weight("head", dims["vocabulary"], dims["hidden"], cut=0)
        self.layers = nn.ModuleList(DecoderLayer(shares, at) for at in range(dims["layers"]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, vocabulary) after the last of ``tokens`` (batch, tokens)."""
        x = self._embedded(tokens)
        for layer in self.layers:
            x = layer(x, self.position)
        self.position += tokens.shape[1]
        last = rms_norm(x[:, -1], (self.shares.spec.dims["hidden"],))
        return self.shares.gather(linear(last, self.head))

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        """Look up our words and add the other ranks' up."""
        each = self.words.shape[0]
        local = tokens - self.shares.rank * each
        other = (local < 0) | (local >= each)
        embedded = self.words[local.masked_fill(other, 0)].masked_fill(other.unsqueeze(-1), 0.0)
        return self.shares.sum(embedded)
