"""Reads flight-recorder dumps of all versions, without trusting them."""
