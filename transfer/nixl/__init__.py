"""NIXL set-up: what has to happen inside the engine's own processes for KV to move well."""
