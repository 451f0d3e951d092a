"""Rank programs that run real models with random weights; PyTorch is imported by all of them."""
