"""What a run says: numbers under TRL's names, the console, trackers, completions."""
