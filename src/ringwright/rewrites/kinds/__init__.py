"""Kinds of rewrites, one file each; see ``ringwright.rewrites``."""
