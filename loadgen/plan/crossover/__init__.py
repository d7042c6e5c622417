"""From which size of a dense model on tensor parallelism beats pure replicas."""
