"""Addresses of gateways, as people write them."""


def with_scheme(address: str) -> str:
    """HOST:PORT is http://HOST:PORT."""
    return address if "://" in address else f"http://{address}"
