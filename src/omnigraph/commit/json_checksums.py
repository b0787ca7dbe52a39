"""Checksums inside small JSON objects: references, sidecars, work records and the removal list.

One field of the object is the checksum of all other fields, so a flipped bit is found even if the JSON is still valid.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import orjson

CHECKSUM = "crc32"


def with_checksum(members: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JSON object, and their checksum as another field."""
    return {**members, CHECKSUM: checksum(members)}


def verify_checksum(members: dict[str, Any]) -> dict[str, Any]:
    """Verify and remove the checksum. Objects of older releases may have none.

    Raises:
        ValueError: the checksum does not match.
    """
    recorded = members.pop(CHECKSUM, None)
    if recorded is not None and recorded != checksum(members):
        raise ValueError("its checksum does not match")
    return members


def checksum(members: Mapping[str, Any]) -> str:
    """Checksum of the fields. It does not depend on their order."""
    return f"{zlib.crc32(orjson.dumps(members, option=orjson.OPT_SORT_KEYS)):08x}"
