"""The document of `attach --json`, as a web page and as terminal text."""
