"""What callers say about a write beside its rows: texts that end up in the commit, checked before anything moves.

A sidecar is written before a commit is published. What it could hold and the manifest could not would stay for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import InputError

LONGEST_NAME = 1024
"""How many bytes an actor, an idempotency key, a commit's id or the name of a label may have."""

LONGEST_TEXT = 64 * 1024
"""How many bytes a message or the value of a label may have."""

MOST_LABELS = 256


def check_text(value: object, what: str, limit: int, *, empty: bool = True) -> None:
    """Refuse what is no text, no Unicode, or too long.

    Args:
        value: what was given.
        what: what it is, as errors call it.
        limit: how many bytes it may have.
        empty: whether it may be empty.

    Raises:
        InputError: it cannot be recorded.
    """
    if not isinstance(value, str):
        raise InputError(f"{what} is a text, not a {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputError(f"{what} holds half of a surrogate pair, so it is no Unicode") from None
    if size > limit:
        raise InputError(f"{what} has {size:,} bytes, and {limit:,} are allowed")
    if not value and not empty:
        raise InputError(f"{what} is empty", hint="leave it out, or say what it is")


def check_actor(actor: object) -> None:
    """Refuse an actor that no commit can name.

    Raises:
        InputError: it is no text, or too long.
    """
    if actor is not None:
        check_text(actor, "the actor", LONGEST_NAME)


def checked_labels(labels: Iterable[tuple[object, object]]) -> tuple[tuple[str, str], ...]:
    """Labels in name order.

    Raises:
        InputError: they cannot be recorded.
    """
    found: dict[str, str] = {}
    for name, value in labels:
        check_text(name, "the name of a label", LONGEST_NAME, empty=False)
        assert isinstance(name, str)
        check_text(value, f"the label '{name}'", LONGEST_TEXT)
        assert isinstance(value, str)
        if name in found:
            raise InputError(f"the label '{name}' is there twice")
        found[name] = value
    if len(found) > MOST_LABELS:
        raise InputError(f"a commit has at most {MOST_LABELS} labels, not {len(found):,}")
    return tuple(sorted(found.items()))
