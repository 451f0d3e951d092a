"""A dashboard for Grafana over the metrics that a running job writes: the file ships with the package."""

from __future__ import annotations

from importlib.resources import files


def dashboard() -> str:
    """Return the dashboard as Grafana's *Import* takes it, JSON; it asks for a Prometheus data source."""
    return (files("ringwright") / "samples" / "live-dashboard.json").read_text("utf-8")
