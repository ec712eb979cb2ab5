"""What each sample of a rollout did with its time: from rows to what is kept of them."""
