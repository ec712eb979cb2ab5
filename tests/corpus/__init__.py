"""Recorded jobs with known answers: `python -m tests.corpus`, see README.md."""
