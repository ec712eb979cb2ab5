"""Rollout engines as the ranks that wait for them need them. Pure."""
