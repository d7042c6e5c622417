"""Builds step-time tables from a source of kernel times. Needs numpy and the `tables` extra; the engine needs neither."""
