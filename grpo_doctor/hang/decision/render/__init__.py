"""The verdict in words and pictures. Pure."""
