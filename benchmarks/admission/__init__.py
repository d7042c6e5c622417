"""Admission against its baselines and an oracle, on a simulated fleet in virtual time (docs/admission-results.md)."""
