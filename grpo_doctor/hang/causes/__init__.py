"""One module per family of causes; each proposes candidates for the verdict."""
