"""Display of single values, the same in conflicts of a merge and in diffs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

from omnigraph.errors.source import cut

LONGEST_TEXT = 200
"""Maximum number of characters of a displayed value."""

_DIGEST = 8
"""Number of displayed digits of the digest of a blob."""

LONGEST_LIST = 8
"""Maximum number of displayed items of a list or vector."""


def plain_value(value: Any) -> Any:
    """Convert a value to a JSON value: times become texts, and so do numbers that JSON cannot represent."""
    if isinstance(value, Mapping):
        return {name: plain_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def value_text(value: Any, *, whole: bool = True) -> str:
    """One value as a short text on one line. Long texts and lists are truncated, and their length is added.

    Args:
        value: the value.
        whole: whether the value is complete. Otherwise its length is unknown and not added.

    >>> value_text("ann"), value_text(None), value_text([0.5] * 384)
    ('"ann"', 'null', '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … (384 items)]')
    """
    if isinstance(value, Mapping) and set(value) == {"data", "uri"}:
        return _blob_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<blob of {len(value):,} bytes>"
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{json.dumps(value[:LONGEST_TEXT], ensure_ascii=False)}…" + f" ({len(value):,} characters)" * whole
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = (", …" + f" ({len(value):,} items)" * whole) if len(value) > LONGEST_LIST else ""
        return f"[{', '.join(value_text(item) for item in value[:LONGEST_LIST])}{more}]"
    return cut(json.dumps(plain_value(value), ensure_ascii=False), LONGEST_TEXT)


def _blob_text(cell: Mapping[str, Any]) -> str:
    if cell["uri"] is not None:
        return f"<blob at {cut(cell['uri'])}>"
    data = cell["data"] or b""
    return f"<blob of {len(data):,} bytes, sha256:{sha256(data).hexdigest()[:_DIGEST]}>"


def values_text(values: Mapping[str, Any] | None) -> str:
    """Named values of a conflict as a short text on one line. Long values are already truncated.

    >>> values_text({"age": 41, "name": "ann"}), values_text(None)
    ('{"age": 41, "name": "ann"}', 'none')
    """
    if values is None:
        return "none"
    members = (
        f"{json.dumps(name, ensure_ascii=False)}: {value_text(value, whole=False)}" for name, value in values.items()
    )
    return f"{{{', '.join(members)}}}"
