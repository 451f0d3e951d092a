"""Kinds of rewrites, one file each; see ``ringwright.model.rewrites``."""
