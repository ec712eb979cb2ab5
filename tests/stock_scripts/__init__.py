"""The launch scripts of frameworks' own repositories, read and checked as a user would."""
