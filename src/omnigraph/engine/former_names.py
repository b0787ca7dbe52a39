"""Hints for former names of types, in the errors of queries and requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import Store
from omnigraph.errors import InputError, TypeCheckError
from omnigraph.lang.schema.type_key import node_key

_UNKNOWN_TYPE = ("T1", "T10")
"""The codes of errors about an unknown type. Their span is the name of the type."""


@contextmanager
def hints_for_former_types(store: Store, view: Manifest) -> Iterator[None]:
    """If a query names a type that was renamed or dropped, add its present name, or the commit that dropped it.

    Args:
        store: the graph.
        view: the state that the query is compiled for.
    """
    try:
        yield
    except TypeCheckError as error:
        if error.diagnostic not in _UNKNOWN_TYPE or error.source is None or error.span is None:
            raise
        name = error.source.text.encode()[error.span.start : error.span.end].decode(errors="ignore")
        hint = former_type_hint(store, view, name)
        if hint is None:
            raise
        raise TypeCheckError(
            error.message, span=error.span, diagnostic=error.diagnostic, hint=hint, source=error.source
        ) from None


@contextmanager
def hints_for_former_names(store: Store, view: Manifest, names: tuple[str, ...] | None) -> Iterator[None]:
    """If a request names types, and one of them was renamed or dropped, add a hint to the error.

    Args:
        store: the graph.
        view: the state that the request reads.
        names: the names of types.
    """
    try:
        yield
    except InputError as error:
        for name in names or ():
            hint = former_type_hint(store, view, name)
            if hint is not None and f"'{name}'" in error.message:
                raise InputError(error.message, hint=hint) from None
        raise


def former_type_hint(store: Store, view: Manifest, name: str) -> str | None:
    """The present name of a type, or the commit that dropped it; None if no readable state had a type of this name."""
    from omnigraph.history.chain import former_type

    found = former_type(store, view, node_key(name))
    return None if found is None else found[1]
