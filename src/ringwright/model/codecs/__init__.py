"""Codecs: number formats in which a node of the network adds, one file each, as exact arithmetic on arrays."""
