"""What `.option(...)` may say about a graph in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.pipeline.frames import STORAGE

_STATE = ("version", "commit", "timestamp")
READ = ("path", "type", "branch", *_STATE, "columns", "where")
CHANGES = ("path", "type", "branch", *_STATE, "columns", "changes", "startingCommit")
STREAM = ("path", "type", "branch", "columns", "changes", "startingCommit", "maxCommitsPerTrigger")
WRITE = ("path", "type", "branch", "base", "mode", "message", "idempotencyKey")
_KNOWN = tuple(dict.fromkeys((*READ, *CHANGES, *STREAM, *WRITE)))
_OF_SPARK = ("serialization.format", "checkpointlocation", "queryname")
"""What Spark adds by itself."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, by the names that the documentation gives them.

    Attributes:
        values: what was said.
        storage: how to reach the place. May hold credentials, so it is never shown.
    """

    values: Mapping[str, str]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, said: Mapping[str, str]) -> Options:
        """Options as Spark passes them: in any case, all of them texts.

        Raises:
            InputError: there is no such option.
        """
        names = {name.lower(): name for name in _KNOWN}
        values: dict[str, str] = {}
        storage: dict[str, str] = {}
        for name, value in said.items():
            if name.lower().startswith(STORAGE):
                storage[name[len(STORAGE) :]] = value
            elif name.lower() in names:
                values[names[name.lower()]] = value
            elif name.lower() not in _OF_SPARK:
                raise InputError(
                    f"there is no option '{cut(name)}'", hint=did_you_mean(name, _KNOWN) or _listed(_KNOWN)
                )
        return cls(values, storage)

    def only(self, allowed: Iterable[str], what: str) -> None:
        """Refuse options that mean something elsewhere.

        Raises:
            InputError: there is one.
        """
        allowed = tuple(allowed)
        for name in self.values:
            if name not in allowed:
                raise InputError(f"the option '{name}' says nothing about {what}", hint=_listed(allowed))

    @property
    def path(self) -> str:
        """Where the graph is.

        Raises:
            InputError: nothing says it.
        """
        return self._required("path", 'name the graph: .load("/data/people") or .option("path", ...)')

    @property
    def type(self) -> str:
        """The node or edge type.

        Raises:
            InputError: nothing says it.
        """
        return self._required("type", 'a DataFrame holds the entities of one type: .option("type", "Person")')

    def _required(self, name: str, hint: str) -> str:
        found = self.values.get(name, "").strip()
        if not found:
            raise InputError(f"the option '{name}' is missing", hint=hint)
        return found

    def text(self, name: str) -> str | None:
        """An option, or None."""
        return self.values.get(name)

    def number(self, name: str, *, least: int = 1) -> int | None:
        """An option that is a whole number, or None.

        Raises:
            InputError: it is none.
        """
        said = self.values.get(name)
        if said is None:
            return None
        if not re.fullmatch(r"\d{1,18}", said.strip()) or int(said) < least:
            raise InputError(f"the option '{name}' is a whole number from {least}, not '{cut(said)}'")
        return int(said)

    def is_set(self, name: str) -> bool:
        """An option that is true or false.

        Raises:
            InputError: it is neither.
        """
        said = self.values.get(name, "false").strip().lower()
        if said not in ("true", "false"):
            raise InputError(f"the option '{name}' is true or false, not '{cut(said)}'")
        return said == "true"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that are wanted, in their order; None for all."""
        said = self.values.get("columns")
        if said is None:
            return None
        names = tuple(name.strip() for name in said.split(","))
        if not all(names):
            raise InputError("the option 'columns' has an empty name in it", hint='write names with commas: "id, name"')
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"the option 'columns' names '{cut(twice)}' twice")
        return names


def _listed(names: Iterable[str]) -> str:
    return f"there are {', '.join(names)}, and {STORAGE}<name>"
