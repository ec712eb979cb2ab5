"""Recorded runs, and whether each fact on the first screen of their reports is true.

`python -m tests.screen_facts` reads the recordings; `--record` makes them again.
"""
