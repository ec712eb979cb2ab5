"""`attach` on jobs of other torch versions, each in an environment of its own."""
