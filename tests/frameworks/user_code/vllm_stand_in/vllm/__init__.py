"""What TRL's AsyncGRPOTrainer imports of vLLM, where there is no GPU to send weights from."""

__version__ = "0.31.0"
