"""Datasets: rows, their prompts as tokens, and the order in which ranks fetch them."""
