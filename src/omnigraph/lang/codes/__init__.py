"""The diagnostic codes of the schema and query languages, in one package, because `@allow` may name codes of both."""

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
