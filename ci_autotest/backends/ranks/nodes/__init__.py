"""Ranks that come from a server: on the nodes of a cluster, or on the GPUs of this machine."""
