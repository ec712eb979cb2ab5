"""What a run says: numbers under TRL's names, the console, completions."""
