"""Validation of commit metadata: actor, message, labels and idempotency key.

The sidecar is written before the commit is published. A value that the sidecar can store but the manifest cannot would
make it impossible to complete or undo the write.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import InputError

LONGEST_NAME = 1024
"""Maximum bytes of an actor, an idempotency key, a commit id or a label name."""

LONGEST_TEXT = 64 * 1024
"""Maximum bytes of a message or a label value."""

MOST_LABELS = 256


def check_text(value: object, what: str, limit: int, *, empty: bool = True) -> None:
    """Check that a value is a valid Unicode string, and not too long.

    Args:
        value: the value.
        what: its name in errors.
        limit: the maximum number of bytes.
        empty: whether it may be empty.

    Raises:
        InputError: the value is invalid.
    """
    if not isinstance(value, str):
        raise InputError(f"{what} must be a text, not a {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputError(f"{what} contains half of a surrogate pair, which is not valid Unicode") from None
    if size > limit:
        raise InputError(f"{what} has {size:,} bytes; at most {limit:,} are allowed")
    if not value and not empty:
        raise InputError(f"{what} is empty", hint="omit it, or give it a value")


def check_actor(actor: object) -> None:
    """Check an actor.

    Raises:
        InputError: it is not a string, or too long.
    """
    if actor is not None:
        check_text(actor, "the actor", LONGEST_NAME)


def checked_labels(labels: Iterable[tuple[object, object]]) -> tuple[tuple[str, str], ...]:
    """Validate labels, and sort them by name.

    Raises:
        InputError: a label is invalid.
    """
    found: dict[str, str] = {}
    for name, value in labels:
        check_text(name, "the name of a label", LONGEST_NAME, empty=False)
        assert isinstance(name, str)
        check_text(value, f"the label '{name}'", LONGEST_TEXT)
        assert isinstance(value, str)
        if name in found:
            raise InputError(f"duplicate label '{name}'")
        found[name] = value
    if len(found) > MOST_LABELS:
        raise InputError(f"a commit has at most {MOST_LABELS} labels, not {len(found):,}")
    return tuple(sorted(found.items()))
