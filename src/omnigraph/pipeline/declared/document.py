"""The file of a pipeline: what it may say, and what that means. Nothing is looked at but the file itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.errors import InputError, cut
from omnigraph.lang.documents import Value, as_document
from omnigraph.lang.documents import read_document as read_yaml
from omnigraph.lang.names import did_you_mean
from omnigraph.pipeline.declared.variables import check_name, sql_text, substituted, variables
from omnigraph.storage.files.input import text_of
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.receipt import LoadMode

_MEMBERS = (
    "pipeline",
    "graph",
    "variables",
    "sources",
    "steps",
    "load",
    "mapping",
    "mode",
    "branch",
    "base",
    "message",
    "embed",
    "checks",
    "then",
)
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Then(StrEnum):
    """What becomes of the branch when all checks have passed."""

    MERGE = "merge"
    """It is merged into the base."""
    REVIEW = "review"
    """It stays as it is, for somebody to look at."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of rows: a path, a directory or a pattern.

    Attributes:
        path: the whole path, or an address.
        columns: the columns of NDJSON and their types, as Spark writes them, for SQL.
    """

    path: str
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A type of a graph, at one commit.

    Attributes:
        graph: where it is; None is the graph that is loaded.
        type: the node or edge type.
        branch: its newest state.
        commit: another state: a commit or a tag.
    """

    graph: str | None
    type: str
    branch: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class SparkSource:
    """What only Spark can read: a table of its catalogue, or a format of its own.

    Attributes:
        table: the name of a table.
        format: how Spark reads it.
        options: what it is told about that. May hold credentials, so it is never shown.
    """

    table: str | None = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


Source = FileSource | GraphSource | SparkSource


@dataclass(frozen=True, slots=True)
class Target:
    """Rows that become nodes or edges.

    Attributes:
        key: the type, `node:Ship`; or the name by which the mapping knows the rows.
        rows: the source or step that has them.
    """

    key: str
    rows: str


@dataclass(frozen=True, slots=True)
class SqlCheck:
    """SQL that must find nothing."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class QueryCheck:
    """A query on the branch, and what it must find.

    Attributes:
        text: the query, or several of which `query` says one.
        params: its parameters.
        least: how many rows it finds, at least.
        most: and at most; None is any number.
    """

    name: str
    text: str
    query: str | None
    params: Mapping[str, Any]
    least: int
    most: int | None


Check = SqlCheck | QueryCheck


@dataclass(frozen=True, slots=True)
class Document:
    """A pipeline as its file declares it.

    Attributes:
        name: of the pipeline.
        file: the file, as errors call it.
        digest: what tells this declaration from others.
        variables: the values in force. They may be secrets, so they are never shown.
        graph: where the graph is, if the file says so.
        sources: where rows come from, by name.
        steps: SQL by the names that its rows have from then on, in order.
        targets: what becomes nodes and edges.
        records: sources of records that say their types themselves.
        mapping: what becomes of tables whose columns are not named like the properties.
        mode: of the load.
        branch: where to; None is a branch of the run's own.
        base: what the branch is forked from if there is none, and what it is merged into.
        message: of the commit.
        embed: whether vectors are computed that the rows leave out.
        checks: what must hold before the branch is handed on.
        then: what becomes of the branch; None where the load goes to the base itself.
    """

    name: str
    file: str
    digest: str
    variables: Mapping[str, str] = field(repr=False)
    graph: str | None
    sources: Mapping[str, Source]
    steps: Mapping[str, str]
    targets: Sequence[Target]
    records: Sequence[str]
    mapping: TableMapping | None
    mode: LoadMode
    branch: str | None
    base: str
    message: str | None
    embed: bool
    checks: Sequence[Check]
    then: Then | None

    @property
    def queries(self) -> list[str]:
        """All SQL that it has."""
        return [*self.steps.values(), *(check.sql for check in self.checks if isinstance(check, SqlCheck))]

    @property
    def needs_spark(self) -> bool:
        """Whether there is something that no other engine can do."""
        named = {target.rows for target in self.targets}
        return bool(self.queries) or any(isinstance(self.sources.get(name), SparkSource) for name in named)


def read_document(
    given: str | os.PathLike[str] | Mapping[str, Any], given_variables: Mapping[str, object] | None = None
) -> Document:
    """Read a declaration.

    Args:
        given: the path of a YAML file, or what it would hold; then paths are relative to the working directory.
        given_variables: values for its variables.

    Raises:
        InputError: it cannot be read, or something in it means nothing.
    """
    if isinstance(given, Mapping):
        return _Reading(Path.cwd(), as_document(given, "the pipeline"), given_variables or {}).document()
    path = Path(given)
    document = read_yaml(text_of(path), path.name)
    return _Reading(Path(os.path.realpath(path)).parent, document, given_variables or {}).document()


class _Reading:
    """Reads one declaration."""

    def __init__(self, directory: Path, top: Value, given: Mapping[str, object]) -> None:
        self.directory = directory
        self.top = top
        members = top.members(_MEMBERS)
        self.told: list[object] = [top.plain()]
        self.variables = variables(members.get("variables"), given, top)
        # SQL is left as it is: there, a variable is a value.
        self.members = {
            name: value if name in ("variables", "steps", "checks") else substituted(value, self.variables)
            for name, value in members.items()
            if value.content is not None
        }

    def document(self) -> Document:
        sources = {name: self._source(name, value) for name, value in self._of("sources").items()}
        steps = self._steps(sources)
        mapping = self._mapping()
        targets, records = self._load(sources, steps, mapping)
        base = self._branch("base") or MAIN
        branch = self._branch("branch")
        checks = [self._check(name, value) for name, value in self._of("checks").items()]
        return Document(
            name=self._name(),
            file=self.top.document,
            digest=_digest(self.told),
            variables=self.variables,
            graph=self._path(self.members["graph"]) if "graph" in self.members else None,
            sources=sources,
            steps=steps,
            targets=targets,
            records=records,
            mapping=mapping,
            mode=self._mode(),
            branch=branch,
            base=base,
            message=self.members["message"].text() if "message" in self.members else None,
            embed=_flag(self.members["embed"]) if "embed" in self.members else True,
            checks=checks,
            then=self._then(branch, base, bool(checks)),
        )

    def _of(self, name: str) -> dict[str, Value]:
        return self.members[name].members() if name in self.members else {}

    def _needed(self, name: str, hint: str) -> Value:
        if name not in self.members:
            raise self.top.error(f"'{name}' is missing", hint)
        return self.members[name]

    def _name(self) -> str:
        value = self._needed("pipeline", "give the pipeline a name: 'pipeline: NAME'")
        if not _PIPELINE_NAME.fullmatch(value.text()):
            raise value.error(f"'{cut(value.text())}' is no name", "use letters, digits, '.', '-' and '_'")
        return value.text()

    def _mode(self) -> LoadMode:
        value = self._needed("mode", "say 'mode: append', 'mode: merge' or 'mode: overwrite'")
        return LoadMode(_choice(value, [mode.value for mode in LoadMode]))

    def _branch(self, name: str) -> str | None:
        if name not in self.members:
            return None
        try:
            return branch_name(self.members[name].text())
        except InputError as error:
            raise self.members[name].error(error.message, error.hint) from None

    def _path(self, value: Value) -> str:
        """A path as it is from anywhere."""
        text = value.text()
        return text if "://" in text else str(self.directory / Path(text).expanduser())

    # Where rows come from

    def _source(self, name: str, value: Value) -> Source:
        check_name(name, value)
        if not isinstance(value.content, dict):
            return FileSource(self._path(value))
        given = value.members(("path", "columns", "graph", "type", "branch", "commit", "table", "format", "options"))
        if "table" in given:
            _only(given, ("table",))
            return SparkSource(table=given["table"].text())
        if "format" in given:
            _only(given, ("format", "options", "path"))
            options = _texts(given["options"]) if "options" in given else {}
            place = {"path": self._path(given["path"])} if "path" in given else {}
            return SparkSource(format=given["format"].text(), options=options | place)
        if "type" in given:
            _only(given, ("type", "graph", "branch", "commit"))
            if "branch" in given and "commit" in given:
                raise value.error("a commit belongs to one branch already: name only that")
            where = {name: given[name].text() for name in ("type", "branch", "commit") if name in given}
            return GraphSource(self._path(given["graph"]) if "graph" in given else None, **where)
        if "path" not in given:
            raise value.error(
                "nothing says where the rows come from", "give path, type (of a graph), table, or format (of Spark)"
            )
        _only(given, ("path", "columns"))
        return FileSource(self._path(given["path"]), _texts(given["columns"]) if "columns" in given else {})

    def _steps(self, sources: Mapping[str, Source]) -> dict[str, str]:
        steps: dict[str, str] = {}
        for name, value in self._of("steps").items():
            check_name(name, value)
            if name in sources:
                raise value.error("a source has this name already", "call the step something else")
            steps[name] = sql_text(value)
        return steps

    def _mapping(self) -> TableMapping | None:
        value = self.members.get("mapping")
        if value is None:
            return None
        try:
            if isinstance(value.content, dict):
                return TableMapping.read(value.plain())
            self.told.append(text_of(self._path(value)).decode(errors="replace"))
            return TableMapping.read(self._path(value))
        except InputError as error:
            raise value.error(error.message, error.hint) from None

    # What they become

    def _load(
        self, sources: Mapping[str, Source], steps: Mapping[str, str], mapping: TableMapping | None
    ) -> tuple[list[Target], list[str]]:
        load = self._needed("load", "say which rows become which type: 'load: {nodes: {Ship: ships}}'")
        given = load.members(("nodes", "edges", "mapped", "records"))
        known = [*sources, *steps]
        targets = [
            Target(f"{kind}:{name}", _one_of(value, known, "source or step"))
            for kind, members in (("node", "nodes"), ("edge", "edges"))
            for name, value in (given[members].members() if members in given else {}).items()
        ]
        for value in given["mapped"].texts() if "mapped" in given else ():
            rows = _one_of(value, known, "source or step")
            if mapping is None or not any(entry.means(rows, rows) for entry in mapping.entries):
                raise value.error(f"the mapping says nothing about '{rows}'", f"write 'source: {rows}' in it")
            targets.append(Target(rows, rows))
        files = [name for name, source in sources.items() if isinstance(source, FileSource)]
        named = given["records"].texts() if "records" in given else []
        records = [_one_of(value, files, "source of files") for value in named]
        if not targets and not records:
            raise load.error("there is nothing to load", "name types below 'nodes' or 'edges'")
        if targets and records:
            raise given["records"].error(
                "records that say their types are loaded by themselves", "make a pipeline of its own for them"
            )
        return targets, records

    # What must hold, and what then

    def _check(self, name: str, value: Value) -> Check:
        if not isinstance(value.content, dict):
            return SqlCheck(name, sql_text(value))
        given = value.members(("sql", "query", "file", "name", "params", "expect"))
        if len([way for way in ("sql", "query", "file") if way in given]) != 1:
            raise value.error("a check is one thing", "give sql, query (a text) or file (a .gq file)")
        if "sql" in given:
            _only(given, ("sql",))
            return SqlCheck(name, sql_text(given["sql"]))
        given |= {member: substituted(given[member], self.variables) for member in given if member != "query"}
        text = given["query"].text() if "query" in given else _file_text(given["file"], self._path(given["file"]))
        params = given["params"].plain() if "params" in given and given["params"].members() else {}
        least, most = _expected(given["expect"]) if "expect" in given else (0, 0)
        return QueryCheck(name, text, given["name"].text() if "name" in given else None, params, least, most)

    def _then(self, branch: str | None, base: str, checked: bool) -> Then | None:
        value = self.members.get("then")
        if branch == base:
            if value is not None or checked:
                raise (value or self.members["checks"]).error(
                    f"the rows go straight to '{base}', where nothing can be checked or merged any more",
                    "name another branch, or none for one of the run's own",
                )
            return None
        if value is None:
            raise self.top.error("'then' is missing", "say 'then: merge' or 'then: review'")
        return Then(_choice(value, [then.value for then in Then]))


def _only(given: Mapping[str, Value], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise given[name].error(f"this means nothing beside '{names[0]}'", f"known here: {', '.join(names)}")


def _one_of(value: Value, known: Sequence[str], what: str) -> str:
    name = value.text()
    if name not in known:
        raise value.error(f"there is no {what} '{cut(name)}'", did_you_mean(name, known))
    return name


def _choice(value: Value, words: Sequence[str]) -> str:
    if value.text() not in words:
        raise value.error(f"'{cut(value.text())}' means nothing here", ", ".join(words))
    return value.text()


def _flag(value: Value) -> bool:
    if not isinstance(value.content, bool):
        raise value.error(f"expected true or false, found {value.kind}")
    return value.content


def _count(value: Value) -> int:
    if not isinstance(value.content, int) or isinstance(value.content, bool) or value.content < 0:
        raise value.error(f"expected a number of rows, found {value.kind}")
    return value.content


def _texts(value: Value) -> dict[str, str]:
    """Names and texts; numbers and truth values as they are written."""
    found = {}
    for name, member in value.members().items():
        if isinstance(member.content, bool):
            found[name] = ("false", "true")[member.content]
        elif isinstance(member.content, int | float):
            found[name] = str(member.content)
        else:
            found[name] = member.text()
    return found


def _expected(value: Value) -> tuple[int, int | None]:
    """How many rows a query finds, at least and at most."""
    if not isinstance(value.content, dict):
        return {"none": (0, 0), "some": (1, None)}[_choice(value, ("none", "some"))]
    given = value.members(("rows", "at_least", "at_most"))
    if "rows" in given:
        _only(given, ("rows",))
        return _count(given["rows"]), _count(given["rows"])
    least = _count(given["at_least"]) if "at_least" in given else 0
    return least, _count(given["at_most"]) if "at_most" in given else None


def _file_text(value: Value, path: str) -> str:
    try:
        return text_of(path).decode()
    except InputError as error:
        raise value.error(error.message, error.hint) from None
    except UnicodeDecodeError:
        raise value.error(f"{path} is not UTF-8") from None


def _digest(content: object) -> str:
    """What tells a declaration from others, however it is laid out."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=16).hexdigest()
