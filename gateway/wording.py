"""Figures in sentences for people."""


def counted(count: float, noun: str) -> str:
    """1 token, 2,000 tokens."""
    return f"{count:,.0f} {noun}" if count == 1 else f"{count:,.0f} {noun}s"
