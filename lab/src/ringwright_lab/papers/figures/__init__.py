"""Published figures of systems that schedule: a file per slug, a function per figure, asked by ``rows/<slug>.toml``."""
