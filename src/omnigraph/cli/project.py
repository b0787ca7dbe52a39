"""The project file `omnigraph.toml`: the graph, the queries and the defaults of commands in a directory."""

# See docs/decisions/0333-a-project-file-fills-in-options.md

from __future__ import annotations

from functools import cache
from pathlib import Path

from omnigraph.cli.operator_config import FORMATS, Binding, is_address
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut

NAME = "omnigraph.toml"
_ENGINES = ("auto", "local", "spark")
_KEYS = ("graph", "queries", "branch", "engine", "output")


@dataclass(frozen=True, slots=True)
class Project:
    """The content of a project file.

    Attributes:
        path: the file.
        graph: the storage of the graph, or the address of a graph of a server.
        queries: a file of queries, or a directory of such files.
        branch: the default of `--branch`.
        engine: the default of `--engine`.
        output: the output format of queries.
    """

    path: Path
    graph: str | None = None
    queries: Path | None = None
    branch: str | None = None
    engine: str | None = None
    output: str | None = None

    def binding(self) -> Binding | None:
        """The target of commands that name no graph."""
        if self.graph is None:
            return None
        return Binding("server" if is_address(self.graph) else "store", self.graph, None, str(self.path))

    def queries_of(self, name: str | None) -> Path | None:
        """The file of queries; of a directory, the one that declares a query.

        Raises:
            InputError: no file of the directory declares it, or a file does not exist.
        """
        if self.queries is None or not self.queries.is_dir():
            return self.queries
        from omnigraph.cli.files import read_bytes
        from omnigraph.lang.query import parse_queries

        files = sorted(self.queries.glob("*.gq"))
        if name is None and len(files) == 1:
            return files[0]
        for file in files:
            if any(query.name == name for query in parse_queries(read_bytes(file), str(file)).queries):
                return file
        what = "name one of the queries" if name is None else f"there is no query '{cut(name)}'"
        raise InputError(f"{what} in {self.queries}", hint="'omnigraph queries list' shows those of a directory")


def find_project() -> Project | None:
    """The project file of the working directory, or of the nearest directory above it that has one.

    Raises:
        InputError: the file cannot be read, or is not valid.
    """
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return None
    path = next((found for folder in (here, *here.parents) if (found := folder / NAME).is_file()), None)
    return None if path is None else _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, changed: int) -> Project:
    import tomllib

    try:
        members = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {cut(str(error))}") from None
    for key, value in members.items():
        if key not in _KEYS:
            from omnigraph.lang.names import did_you_mean

            raise InputError(f"{path}: unknown name '{cut(key)}'", hint=did_you_mean(key, _KEYS))
        if not isinstance(value, str) or not value:
            raise InputError(f"{path}: {key}: expected a text")
    for key, choices in (("engine", _ENGINES), ("output", FORMATS)):
        if members.get(key, choices[0]) not in choices:
            raise InputError(f"{path}: {key}: '{cut(members[key])}' is not one of {', '.join(choices)}")
    graph, queries = members.get("graph"), members.get("queries")
    if graph is not None and "://" not in graph:
        graph = str(path.parent / graph)
    return Project(
        path,
        graph,
        None if queries is None else path.parent / queries,
        members.get("branch"),
        members.get("engine"),
        members.get("output"),
    )
