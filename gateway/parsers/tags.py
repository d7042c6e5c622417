"""Marks in an answer's text that may arrive in pieces."""


def begun(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`; 0 when none."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
