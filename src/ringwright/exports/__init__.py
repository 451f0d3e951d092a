"""Exports: one file per output format; a Trace in, files out."""
