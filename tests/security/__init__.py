"""Files made to cost more than they weigh: `python -m tests.security` says what they cost."""
