"""Published scaling results beside simulated ones, and the map of which layout wins where. docs/reproduction.md."""
