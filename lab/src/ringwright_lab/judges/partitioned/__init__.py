"""Partitioned communication on real ranks in the lab: levels, blocks and several networks, predicted before they are measured."""
