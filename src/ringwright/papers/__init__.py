"""The paper's claim beside ours: what a `reproduce/<slug>.toml` describes, run and held against its tolerance."""
