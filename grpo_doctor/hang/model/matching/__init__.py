"""Which rank did not do what the others did, from their recordings alone."""
