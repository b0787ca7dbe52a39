"""The diagnostic codes of both languages. They are below both, because `@allow` in a schema may name a query code."""

from __future__ import annotations

from functools import cache

from omnigraph.lang.codes import query, schema
from omnigraph.lang.diagnostics import Diagnostic


@cache
def all_codes() -> dict[str, Diagnostic]:
    """All diagnostics of both languages, by code."""
    duplicates = schema.CODES.keys() & query.CODES.keys()
    if duplicates:
        raise ValueError(f"duplicate diagnostic codes: {', '.join(sorted(duplicates))}")
    return dict(sorted((schema.CODES | query.CODES).items()))
