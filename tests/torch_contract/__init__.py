"""What `attach` takes for granted of torch's CUDA wheels, read out of the wheels themselves."""
