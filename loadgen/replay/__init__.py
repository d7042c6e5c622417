"""A recorded log of requests through the fleet simulator, under one policy or two side by side (docs/policy.md)."""
