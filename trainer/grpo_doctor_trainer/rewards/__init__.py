"""Reward functions: the built-in ones, the user's own, and how their results become one number."""
