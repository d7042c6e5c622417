"""Server-sent events out of a byte stream that may be cut anywhere."""


class EventReader:
    """Feeds on bytes, gives the `data` of every complete event."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        if self._rest:
            data = self._rest + data
        lines = data.split(b"\n")
        self._rest = lines.pop()
        events: list[bytes] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def end(self) -> list[bytes]:
        """What is complete but for its closing blank line, when the stream has ended."""
        events = self.feed(b"\n\n") if self._rest else []
        if self._data:
            events.append(b"\n".join(self._data))
            self._data = []
        return events
