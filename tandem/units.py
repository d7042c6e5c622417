"""Numbers for people."""

_UNITS = ("B", "KB", "MB", "GB", "TB")


def number(value: float) -> str:
    """9,999,999 in full, 0.333333 in six digits."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


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
