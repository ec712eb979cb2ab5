"""Recordings: merged from a run directory, written as `trace.json`, read back into one model."""
