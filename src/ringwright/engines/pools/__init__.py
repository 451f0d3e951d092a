"""Pools of slots by packets: what passes through switches that add, who mends a loss, and how long that takes."""
