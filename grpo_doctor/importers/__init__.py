"""Traces made from what people already have: logs of frameworks, traces of profilers."""
