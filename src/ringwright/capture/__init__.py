"""Beside a live job: what records it, and a plug-in that lets NCCL follow a table."""
