"""The worker process: one engine behind the Worker, Prefill and Decode services."""
