"""Which policy is in force, how it came to be, and how it is changed while requests are served (docs/policy.md)."""
