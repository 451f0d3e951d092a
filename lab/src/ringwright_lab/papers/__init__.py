"""The paper's claim beside ours: what a `rows/<slug>.toml` describes, run and held against its tolerance."""
