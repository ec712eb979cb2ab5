"""Real runs of which it is known what is wrong with them, and what the rules say."""
