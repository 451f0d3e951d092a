"""Judges: real ranks, namespaces and measured tables beside what the product says of them."""
