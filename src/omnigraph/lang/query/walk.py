"""Tree walks over the syntax tree and the IR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from omnigraph.errors import Span
from omnigraph.lang.tokens import Tokens

_MEMBERS: dict[type, tuple[str, ...] | None] = {}


def _member_names(cls: type) -> tuple[str, ...] | None:
    """The member names of a node class; None for other classes."""
    if cls not in _MEMBERS:
        _MEMBERS[cls] = tuple(f.name for f in fields(cls)) if is_dataclass(cls) else None
    return _MEMBERS[cls]


def walk(node: object) -> Iterator[object]:
    """Yield a node and all its descendants, in source order. Iterative, so a deep tree cannot overflow the stack."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, tuple) and not isinstance(current, Span):
            stack.extend(reversed(current))
            continue
        names = _member_names(type(current))
        if names is None or isinstance(current, Tokens):
            continue
        yield current
        stack.extend(getattr(current, name) for name in reversed(names))
