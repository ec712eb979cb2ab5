"""What needs a GPU: `make gpu`, or `python -m tests.gpu`, and the tests marked `gpu`."""
