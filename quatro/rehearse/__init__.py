"""What the same code would do on a CUDA device that is not there: `pretended_gpu` in pretended.py begins it."""
