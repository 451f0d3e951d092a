"""How much communication computation hides, and why the rest is exposed."""
