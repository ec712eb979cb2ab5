"""Fetches flight-recorder dumps and NCCL RAS answers from a job that was not prepared for it."""
