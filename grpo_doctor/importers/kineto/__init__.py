"""Traces of the PyTorch profiler (Kineto), one or many ranks: steps, GPU time, communication."""
