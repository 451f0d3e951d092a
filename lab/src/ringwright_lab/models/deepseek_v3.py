"""DeepSeek-V3 of the transformers library, from dimensions."""

from __future__ import annotations

from torch import nn

from ringwright_lab.models.language import logits, loss, quiet, tokens
from ringwright_lab.models.llama import blocks, decoder, head

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        **decoder(dims),
        num_key_value_heads=dims["heads"],
        moe_intermediate_size=dims["expert_intermediate"],
        n_routed_experts=dims["experts"],
        n_shared_experts=dims["shared"],
        num_experts_per_tok=dims["active"],
        n_group=dims["groups"],
        topk_group=dims["active_groups"],
        first_k_dense_replace=dims["dense_layers"],
        q_lora_rank=dims["q_rank"],
        kv_lora_rank=dims["kv_rank"],
        qk_nope_head_dim=dims["nope"],
        qk_rope_head_dim=dims["rope"],
        v_head_dim=dims["value"],
    )
    return quiet(lambda: DeepseekV3ForCausalLM(config))
