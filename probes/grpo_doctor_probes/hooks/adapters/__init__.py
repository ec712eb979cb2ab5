"""One small module per framework: which of its functions are which phase, in which versions."""
