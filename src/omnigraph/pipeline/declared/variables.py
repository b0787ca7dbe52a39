"""Variables of a pipeline: `${name}` in texts. In SQL, a variable is a query parameter `:name`."""

# See docs/decisions/0117-a-variable-is-a-value.md

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from omnigraph.errors import cut
from omnigraph.lang.documents import Value
from omnigraph.lang.names import did_you_mean

_VARIABLE = re.compile(r"\$(\$|\{([^}]*)\})")
_IN_SQL = re.compile(r"\$\{(\w*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_VIEW_PREFIXES = ("node_", "edge_")
_NAMES = "use letters, digits and '_', and start with a letter"


def check_name(name: str, value: Value) -> None:
    """Check that SQL can use a name.

    Raises:
        InputError: the name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise value.error(f"'{cut(name)}' is not a valid name", _NAMES)
    if name.lower().startswith(_TYPE_VIEW_PREFIXES):
        raise value.error(
            f"'{cut(name)}' is reserved for views of types", "names that start with node_ or edge_ are reserved"
        )


def variables(declared: Value | None, given: Mapping[str, object], top: Value) -> dict[str, str]:
    """The values of the variables.

    Args:
        declared: the names and default values; null for a variable without default.
        given: the values from the caller.
        top: the root of the document, for error messages.

    Raises:
        InputError: a variable has no value, or is not declared.
    """
    known = {} if declared is None or declared.content is None else declared.members()
    for name in given:
        if name not in known:
            where = declared or top
            raise where.error(
                f"there is no variable '{cut(name)}'", did_you_mean(name, known) or "declare it below 'variables'"
            )
    values = {}
    for name, default in known.items():
        check_name(name, default)
        value = given.get(name, default.content)
        if value is None:
            raise default.error("this variable has no value", f"give one: --var {name}=VALUE")
        if not isinstance(value, str | int | float):
            raise default.error("a variable must be a text or a number")
        values[name] = ("false", "true")[value] if isinstance(value, bool) else str(value)
    return values


def substitute(value: Value, known: Mapping[str, str]) -> Value:
    """A value with the variables in all its texts substituted; `$$` is a dollar sign.

    Raises:
        InputError: there is no such variable.
    """
    if isinstance(value.content, dict):
        return replace(value, content={name: substitute(member, known) for name, member in value.content.items()})
    if isinstance(value.content, list):
        return replace(value, content=[substitute(item, known) for item in value.content])
    if not isinstance(value.content, str):
        return value

    def found(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        if match[2] not in known:
            hint = did_you_mean(match[2], known) or "declare it below 'variables'; '$$' is a dollar sign"
            raise value.error(f"there is no variable '{cut(match[2])}'", hint)
        return known[match[2]]

    return replace(value, content=_VARIABLE.sub(found, value.content))


def sql_text(value: Value) -> str:
    """The SQL text of a value.

    Raises:
        InputError: the value is not a text, or contains `${name}`.
    """
    text = value.text()
    found = _IN_SQL.search(text)
    if found is not None:
        raise value.error(
            f"in SQL, a variable is a query parameter: write :{found[1] or 'name'} instead of {found[0]}",
            "for the name of a table or column, write IDENTIFIER(:name)",
        )
    return text.strip().rstrip(";")
