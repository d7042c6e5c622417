"""Numbers for people."""

_UNITS = ("B", "KB", "MB", "GB", "TB")


def counted(count: float, noun: str) -> str:
    """1 token, 2,000 tokens."""
    return f"{count:,g} {noun}" if count == 1 else f"{count:,.0f} {noun}s"


def size(count: float) -> str:
    """Decimal units, as links and disks are sold."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"


def rate(bytes_per_s: float) -> str:
    return f"{size(bytes_per_s)}/s"
