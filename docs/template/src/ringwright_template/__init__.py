"""Plug-ins for Ringwright."""
