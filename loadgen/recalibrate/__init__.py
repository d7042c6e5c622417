"""A cost table held against a fixed trace on real layouts, and corrected by it (R-34)."""
