"""Ratios against peers, measured in one run. Nothing here is a test."""
