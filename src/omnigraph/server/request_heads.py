"""Heads of requests without offers of other protocols, also if they arrive in several parts."""

from __future__ import annotations

import re

_UPGRADE = b"upgrade:"
_ANYWHERE = re.compile(re.escape(_UPGRADE), re.IGNORECASE)
_EMPTY = (b"\r\n", b"\n")


class RequestHead:
    """The head of the next request of a connection. Its header `Upgrade` gets another name.

    Some clients offer HTTP/2 with every request, and expect an answer in HTTP/1.1 if the server does not know it. The
    parser would take the body for bytes of the other protocol.
    """

    def __init__(self) -> None:
        self._held = b""
        """The beginning of a line that may become the header, or the end of the head."""
        self._in_line = False
        self._has_lines = False

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        r"""Split bytes into those of the head, for the parser, and those that follow it.

        Bytes with a whole head and without the header are not split: they may have several requests.

        >>> RequestHead().split(b"POST / HTTP/1.1\r\nUpgrade: h2c\r\n\r\nbody")
        (b'POST / HTTP/1.1\r\nx-offered-Upgrade: h2c\r\n\r\n', b'body')
        """
        is_new = not (self._held or self._in_line or self._has_lines)
        if is_new and b"\r\n\r\n" in data and _ANYWHERE.search(data) is None:
            return data, b""
        data, self._held = self._held + data, b""
        parts: list[bytes] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            line = data[start:end]
            starts, is_whole = not self._in_line, line.endswith(b"\n")
            start, self._in_line = end, not is_whole
            if starts:
                name = line[: len(_UPGRADE)].lower()
                if name == _UPGRADE:
                    parts.append(b"x-offered-")
                elif not is_whole and (_UPGRADE.startswith(name) or line == b"\r"):
                    self._held, self._in_line = line, False
                    break
            parts.append(line)
            if starts and line in _EMPTY:
                if self._has_lines:
                    self._has_lines = False
                    break
            else:
                self._has_lines = True
        return b"".join(parts), data[start:]
