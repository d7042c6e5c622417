"""Which layout of a number of GPUs serves given traffic within given limits, and what limits it."""
