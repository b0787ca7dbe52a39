"""Checksums inside small objects: references, sidecars, records of work, and the list of condemned versions.

Such an object is one JSON text. One of its members is the checksum of all others, so that a flipped bit which leaves
it a JSON text shows too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import orjson

CHECKSUM = "crc32"


def with_checksum(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an object, with their checksum."""
    return {**members, CHECKSUM: checksum(members)}


def verify_checksum(members: dict[str, Any]) -> dict[str, Any]:
    """The members of an object that was read, without their checksum. Objects of older releases may have none.

    Raises:
        ValueError: the checksum is another one.
    """
    said = members.pop(CHECKSUM, None)
    if said is not None and said != checksum(members):
        raise ValueError("its checksum does not match")
    return members


def checksum(members: Mapping[str, Any]) -> str:
    """The checksum of members, in whatever order they are."""
    return f"{zlib.crc32(orjson.dumps(members, option=orjson.OPT_SORT_KEYS)):08x}"
