"""Options of the Spark data source: `.option(...)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.pipeline.frames import STORAGE

_STATE = ("version", "commit", "timestamp")
READ = ("path", "type", "branch", *_STATE, "columns", "where")
CHANGES = ("path", "type", "branch", *_STATE, "columns", "changes", "startingCommit", "rowsPerTask")
STREAM = ("path", "type", "branch", "columns", "changes", "startingCommit", "maxCommitsPerTrigger", "rowsPerTask")
WRITE = ("path", "type", "branch", "base", "mode", "message", "idempotencyKey")
_KNOWN = tuple(dict.fromkeys((*READ, *CHANGES, *STREAM, *WRITE)))
_SPARK_OPTIONS = ("serialization.format", "checkpointlocation", "queryname")
"""Options that Spark itself adds to those of the user."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, by their documented names.

    Attributes:
        values: the options.
        storage: the storage options. May hold credentials, so `repr` leaves them out.
    """

    values: Mapping[str, str]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """Parse options as Spark passes them: names in any case, values as texts.

        Raises:
            InputError: there is no such option.
        """
        names = {name.lower(): name for name in _KNOWN}
        values: dict[str, str] = {}
        storage: dict[str, str] = {}
        for name, value in given.items():
            if name.lower().startswith(STORAGE):
                storage[name[len(STORAGE) :]] = value
            elif name.lower() in names:
                values[names[name.lower()]] = value
            elif name.lower() not in _SPARK_OPTIONS:
                raise InputError(
                    f"there is no option '{cut(name)}'", hint=did_you_mean(name, _KNOWN) or _listed(_KNOWN)
                )
        return cls(values, storage)

    def allow_only(self, allowed: Iterable[str], what: str) -> None:
        """Reject options that do not apply.

        Raises:
            InputError: an option does not apply.
        """
        allowed = tuple(allowed)
        for name in self.values:
            if name not in allowed:
                raise InputError(f"the option '{name}' does not apply to {what}", hint=_listed(allowed))

    @property
    def path(self) -> str:
        """The address of the graph.

        Raises:
            InputError: the option is missing.
        """
        return self._required("path", 'name the graph: .load("/data/people") or .option("path", ...)')

    @property
    def type(self) -> str:
        """The node or edge type.

        Raises:
            InputError: the option is missing.
        """
        return self._required("type", 'a DataFrame has the entities of one type: .option("type", "Person")')

    def _required(self, name: str, hint: str) -> str:
        found = self.values.get(name, "").strip()
        if not found:
            raise InputError(f"the option '{name}' is missing", hint=hint)
        return found

    def text(self, name: str) -> str | None:
        """The value of an option; None if it is not given."""
        return self.values.get(name)

    def number(self, name: str, *, least: int = 1) -> int | None:
        """The value of an integer option; None if it is not given.

        Raises:
            InputError: the value is not an integer, or is too small.
        """
        given = self.values.get(name)
        if given is None:
            return None
        if not re.fullmatch(r"\d{1,18}", given.strip()) or int(given) < least:
            raise InputError(f"the option '{name}' must be an integer of at least {least}, not '{cut(given)}'")
        return int(given)

    def is_set(self, name: str) -> bool:
        """The value of a boolean option.

        Raises:
            InputError: the value is neither true nor false.
        """
        given = self.values.get(name, "false").strip().lower()
        if given not in ("true", "false"):
            raise InputError(f"the option '{name}' must be true or false, not '{cut(given)}'")
        return given == "true"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The selected columns, in order; None for all."""
        given = self.values.get("columns")
        if given is None:
            return None
        names = tuple(name.strip() for name in given.split(","))
        if not all(names):
            raise InputError("the option 'columns' has an empty name", hint='separate names with commas: "id, name"')
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise InputError(f"the option 'columns' names '{cut(duplicate)}' twice")
        return names


def _listed(names: Iterable[str]) -> str:
    return f"the options are {', '.join(names)}, and {STORAGE}<name>"
