"""Verbs that run and prove things: the command line of `ringwright` lists them where this package is installed."""
