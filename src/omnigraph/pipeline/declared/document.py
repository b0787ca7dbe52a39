"""The file of a declared pipeline: its syntax and its parsed form.

This module opens only this file and the files that it includes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.documents import Value, as_document
from omnigraph.lang.documents import read_document as read_yaml
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import type_key
from omnigraph.pipeline.declared.variables import check_name, sql_text, substitute, variables
from omnigraph.storage.files.input import label_of, text_of
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
    """The action after all checks have passed."""

    MERGE = "merge"
    """Merge the branch into the base."""
    REVIEW = "review"
    """Keep the branch for review."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files with rows: a path, a directory or a pattern.

    Attributes:
        path: the absolute path, or an address.
        columns: for NDJSON files, the columns that SQL can use, with their Spark types.
    """

    path: str
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A type of a graph, at one commit.

    Attributes:
        graph: the address of the graph; None for the target graph.
        type: the node or edge type.
        branch: the branch whose head is read.
        commit: a commit or a tag, in place of a branch.
    """

    graph: str | None
    type: str
    branch: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A source that only Spark can read: a table of its catalogue, or a data source.

    Attributes:
        table: the name of a table.
        format: the format of the data source.
        options: the options of the data source. May hold credentials, so `repr` leaves them out.
    """

    table: str | None = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


Source = FileSource | GraphSource | SparkSource


@dataclass(frozen=True, slots=True)
class Target:
    """Rows that become nodes or edges.

    Attributes:
        key: the type key, such as `node:Ship`; for rows with a mapping, the name of their source or step.
        rows: the name of the source or step that supplies the rows.
    """

    key: str
    rows: str


@dataclass(frozen=True, slots=True)
class SqlCheck:
    """A SQL query that must return no rows."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class QueryCheck:
    """A query on the branch, and the expected number of rows.

    Attributes:
        name: the name of the check.
        text: the text of one or more queries.
        query: the name of the query to run; None if the text has only one.
        params: the parameters of the query.
        least: the minimum number of rows.
        most: the maximum number of rows; None for any number.
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
    """A declared pipeline.

    Attributes:
        name: the name of the pipeline.
        file: the file name, for errors.
        digest: a digest of the declaration.
        variables: the values of the variables. They may be secrets, so `repr` leaves them out.
        graph: the address of the graph, if the file names it.
        sources: the sources of rows, by name.
        steps: SQL steps by name, in order.
        targets: the rows that become nodes and edges.
        records: the names of the sources in which each record names its own type.
        mapping: the mapping of tables whose columns do not have the names of the properties.
        mode: the load mode.
        branch: the branch to load into; if None, each run creates a new branch.
        base: the branch from which a new branch is created, and into which it is merged.
        message: the message of the commit.
        embed: whether to compute missing vectors.
        checks: the checks of the branch.
        then: the action after the checks; None if the rows are loaded into the base.
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
        """All SQL texts of the pipeline."""
        return [*self.steps.values(), *(check.sql for check in self.checks if isinstance(check, SqlCheck))]

    @property
    def needs_spark(self) -> bool:
        """Whether the pipeline has SQL, or a source that only Spark can read."""
        named = {target.rows for target in self.targets}
        return bool(self.queries) or any(isinstance(self.sources.get(name), SparkSource) for name in named)


def read_document(
    given: str | os.PathLike[str] | Mapping[str, Any], given_variables: Mapping[str, object] | None = None
) -> Document:
    """Read a declaration.

    Args:
        given: the path of a YAML file, or the content. Paths in given content are relative to the working directory.
        given_variables: the values of the variables of the pipeline.

    Raises:
        InputError: the file cannot be read, or is not valid.
    """
    if isinstance(given, Mapping):
        return _DocumentReader(Path.cwd(), as_document(given, "the pipeline"), given_variables or {}).document()
    path = Path(given)
    document = read_yaml(text_of(path), label_of(path))
    return _DocumentReader(Path(os.path.realpath(path)).parent, document, given_variables or {}).document()


class _DocumentReader:
    """Parses one declaration."""

    def __init__(self, directory: Path, top: Value, given: Mapping[str, object]) -> None:
        self.directory = directory
        self.top = top
        members = top.members(_MEMBERS)
        self.digested: list[object] = [top.plain()]
        self.variables = variables(members.get("variables"), given, top)
        # Variables are not substituted in SQL: they are passed as query parameters.
        self.members = {
            name: value if name in ("variables", "steps", "checks") else substitute(value, self.variables)
            for name, value in members.items()
            if value.content is not None
        }

    def document(self) -> Document:
        sources = {name: self._source(name, value) for name, value in self._members_of("sources").items()}
        steps = self._steps(sources)
        mapping = self._mapping()
        targets, records = self._load(sources, steps, mapping)
        base = self._branch("base") or MAIN
        branch = self._branch("branch")
        checks = [self._check(name, value) for name, value in self._members_of("checks").items()]
        return Document(
            name=self._name(),
            file=self.top.document,
            digest=_digest(self.digested),
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

    def _members_of(self, name: str) -> dict[str, Value]:
        return self.members[name].members() if name in self.members else {}

    def _required(self, name: str, hint: str) -> Value:
        if name not in self.members:
            raise self.top.error(f"'{name}' is missing", hint)
        return self.members[name]

    def _name(self) -> str:
        value = self._required("pipeline", "give the pipeline a name: 'pipeline: NAME'")
        if not _PIPELINE_NAME.fullmatch(value.text()):
            raise value.error(f"'{cut(value.text())}' is not a valid name", "use letters, digits, '.', '-' and '_'")
        return value.text()

    def _mode(self) -> LoadMode:
        value = self._required("mode", "write 'mode: append', 'mode: merge' or 'mode: overwrite'")
        return LoadMode(_choice(value, [mode.value for mode in LoadMode]))

    def _branch(self, name: str) -> str | None:
        if name not in self.members:
            return None
        try:
            return branch_name(self.members[name].text())
        except InputError as error:
            raise self.members[name].error(error.message, error.hint) from None

    def _path(self, value: Value) -> str:
        """An absolute path, or an address."""
        text = value.text()
        return text if "://" in text else str(self.directory / Path(text).expanduser())

    # Parsing of sources

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
            location = {"path": self._path(given["path"])} if "path" in given else {}
            return SparkSource(format=given["format"].text(), options=options | location)
        if "type" in given:
            _only(given, ("type", "graph", "branch", "commit"))
            if "branch" in given and "commit" in given:
                raise value.error("give a branch or a commit, not both")
            where = {name: given[name].text() for name in ("type", "branch", "commit") if name in given}
            return GraphSource(self._path(given["graph"]) if "graph" in given else None, **where)
        if "path" not in given:
            raise value.error(
                "it does not say where the rows come from", "give path, type (of a graph), table, or format (of Spark)"
            )
        _only(given, ("path", "columns"))
        return FileSource(self._path(given["path"]), _texts(given["columns"]) if "columns" in given else {})

    def _steps(self, sources: Mapping[str, Source]) -> dict[str, str]:
        steps: dict[str, str] = {}
        for name, value in self._members_of("steps").items():
            check_name(name, value)
            if name in sources:
                raise value.error("a source already has this name", "rename the step")
            steps[name] = sql_text(value)
        return steps

    def _mapping(self) -> TableMapping | None:
        value = self.members.get("mapping")
        if value is None:
            return None
        try:
            if isinstance(value.content, dict):
                return TableMapping.read(value.plain())
            self.digested.append(text_of(self._path(value)).decode(errors="replace"))
            return TableMapping.read(self._path(value))
        except InputError as error:
            raise value.error(error.message, error.hint) from None

    # Parsing of targets

    def _load(
        self, sources: Mapping[str, Source], steps: Mapping[str, str], mapping: TableMapping | None
    ) -> tuple[list[Target], list[str]]:
        load = self._required("load", "name the rows of each type: 'load: {nodes: {Ship: ships}}'")
        given = load.members(("nodes", "edges", "mapped", "records"))
        known = [*sources, *steps]
        targets = [
            Target(type_key(kind, name), _one_of(value, known, "source or step"))
            for kind, members in ((TypeKind.NODE, "nodes"), (TypeKind.EDGE, "edges"))
            for name, value in (given[members].members() if members in given else {}).items()
        ]
        for value in given["mapped"].texts() if "mapped" in given else ():
            rows = _one_of(value, known, "source or step")
            if mapping is None or not any(entry.means(rows, rows) for entry in mapping.entries):
                raise value.error(f"the mapping has no entry for '{rows}'", f"add one with 'source: {rows}'")
            targets.append(Target(rows, rows))
        files = [name for name, source in sources.items() if isinstance(source, FileSource)]
        named = given["records"].texts() if "records" in given else []
        records = [_one_of(value, files, "source of files") for value in named]
        if not targets and not records:
            raise load.error("there is nothing to load", "name types below 'nodes' or 'edges'")
        if targets and records:
            raise given["records"].error(
                "records that name their types cannot be combined with 'nodes' or 'edges'", "use a separate pipeline"
            )
        return targets, records

    # Parsing of checks and of the final action

    def _check(self, name: str, value: Value) -> Check:
        if not isinstance(value.content, dict):
            return SqlCheck(name, sql_text(value))
        given = value.members(("sql", "query", "file", "name", "params", "expect"))
        if len([form for form in ("sql", "query", "file") if form in given]) != 1:
            raise value.error(
                "a check needs exactly one of 'sql', 'query' and 'file'", "'query' is a text, 'file' is a .gq file"
            )
        if "sql" in given:
            _only(given, ("sql",))
            return SqlCheck(name, sql_text(given["sql"]))
        given |= {member: substitute(given[member], self.variables) for member in given if member != "query"}
        text = given["query"].text() if "query" in given else _file_text(given["file"], self._path(given["file"]))
        params = given["params"].plain() if "params" in given and given["params"].members() else {}
        least, most = _expected(given["expect"]) if "expect" in given else (0, 0)
        return QueryCheck(name, text, given["name"].text() if "name" in given else None, params, least, most)

    def _then(self, branch: str | None, base: str, checked: bool) -> Then | None:
        value = self.members.get("then")
        if branch == base:
            if value is not None or checked:
                raise (value or self.members["checks"]).error(
                    f"the rows are loaded into '{base}' directly, so they cannot be checked or merged",
                    "name another branch, or omit 'branch' for a new branch of the run",
                )
            return None
        if value is None:
            raise self.top.error("'then' is missing", "write 'then: merge' or 'then: review'")
        return Then(_choice(value, [then.value for then in Then]))


def _only(given: Mapping[str, Value], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise given[name].error(f"this cannot be combined with '{names[0]}'", f"allowed here: {', '.join(names)}")


def _one_of(value: Value, known: Sequence[str], what: str) -> str:
    name = value.text()
    if name not in known:
        raise value.error(f"there is no {what} '{cut(name)}'", did_you_mean(name, known))
    return name


def _choice(value: Value, words: Sequence[str]) -> str:
    if value.text() not in words:
        raise value.error(f"'{cut(value.text())}' is not allowed here", ", ".join(words))
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
    """The members of an object as texts. Numbers and booleans are converted to text."""
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
    """The minimum and the maximum number of rows."""
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
    """A digest of a declaration. The layout of the file (spaces, comments) does not change it."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=16).hexdigest()
