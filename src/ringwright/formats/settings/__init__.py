"""Settings of tuners, launchers and frameworks: each file writes one format, and reads it back.

What a file says under ``EXPORTS`` is an export like those of ``formats.exports``.
"""
