"""Forty sick runs that an agent or a person may touch only through commands, and their scorer."""
