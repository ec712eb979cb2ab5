"""The document of `compare --json`, as a web page and as terminal text."""
