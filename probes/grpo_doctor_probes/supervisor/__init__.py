"""Starts a job, accompanies it and records how it ended. Never part of the job itself.

If this process dies the job continues: it holds nothing that the job needs, neither a pipe of its
output nor its terminal.
"""
