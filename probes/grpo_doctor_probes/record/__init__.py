"""Inside the job: the recorder. Standard library only, and imports nothing of the rest."""
