"""Variables of a pipeline: `${name}` in its texts. In SQL a variable is a value, `:name`, and never text."""

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
_OF_TYPES = ("node_", "edge_")
_NAMES = "use letters, digits and '_', and begin with a letter"


def check_name(name: str, value: Value) -> None:
    """Refuse what SQL could not name.

    Raises:
        InputError: it is no name.
    """
    if not _NAME.fullmatch(name):
        raise value.error(f"'{cut(name)}' is no name", _NAMES)
    if name.lower().startswith(_OF_TYPES):
        raise value.error(
            f"'{cut(name)}' would be the view of a type", "names that begin with node_ and edge_ are those"
        )


def variables(declared: Value | None, given: Mapping[str, object], top: Value) -> dict[str, str]:
    """The values in force.

    Args:
        declared: names and what they are unless somebody says otherwise; null where somebody has to.
        given: what was said.
        top: the declaration.

    Raises:
        InputError: a variable has no value, or is not declared.
    """
    known = {} if declared is None or declared.content is None else declared.members()
    for name in given:
        if name not in known:
            where = declared or top
            raise where.error(f"there is no variable '{cut(name)}'", did_you_mean(name, known) or "declare it first")
    values = {}
    for name, default in known.items():
        check_name(name, default)
        value = given.get(name, default.content)
        if value is None:
            raise default.error("this variable has no value", f"give one: --var {name}=VALUE")
        if not isinstance(value, str | int | float):
            raise default.error("a variable is a text or a number")
        values[name] = ("false", "true")[value] if isinstance(value, bool) else str(value)
    return values


def substituted(value: Value, known: Mapping[str, str]) -> Value:
    """A value with the values of the variables in all its texts; `$$` is a dollar sign.

    Raises:
        InputError: there is no such variable.
    """
    if isinstance(value.content, dict):
        return replace(value, content={name: substituted(member, known) for name, member in value.content.items()})
    if isinstance(value.content, list):
        return replace(value, content=[substituted(item, known) for item in value.content])
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
    """SQL as it was written.

    Raises:
        InputError: it is none, or wants a variable as text.
    """
    text = value.text()
    found = _IN_SQL.search(text)
    if found is not None:
        raise value.error(
            f"in SQL, a variable is a value: write :{found[1] or 'name'} in the place of {found[0]}",
            "for the name of a table or column, IDENTIFIER(:name)",
        )
    return text.strip().rstrip(";")
