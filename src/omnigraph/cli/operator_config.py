"""The configuration of the user: servers, defaults, profiles and aliases, in `config.yaml`. It has no secrets."""

# See docs/decisions/0331-the-operator-config-warns-about-unknown-names.md

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.settings import HOME

if TYPE_CHECKING:
    from omnigraph.lang.documents import Value

T = TypeVar("T")

FORMATS = ("table", "kv", "csv", "tsv", "json", "jsonl", "ndjson", "markdown", "arrow", "parquet")
LAYOUTS = ("truncate", "wrap")
KINDS = ("server", "cluster", "store")
MIN_WIDTH = 8


def home() -> Path:
    """The directory of the configuration, the credentials and the history of the shell.

    Raises:
        InputError: the user has no home directory, as some users of containers.
    """
    try:
        return Path(HOME.text() or "~/.omnigraph").expanduser()
    except RuntimeError:
        raise InputError("there is no home directory", hint=f"name a directory with {HOME.name}") from None


@dataclass(frozen=True, slots=True)
class Binding:
    """The default target of commands.

    Attributes:
        kind: `server`, `cluster` or `store`.
        target: the name or address of the server or cluster, or the address of the storage.
        default_graph: the graph of the server.
        source: where the binding comes from, for messages.
    """

    kind: str
    target: str
    default_graph: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A named binding. An invalid one is an error only for the commands that use it.

    Attributes:
        targets: the given kinds with their targets; a valid profile has one.
        default_graph: the graph of the server.
        error: why the profile is not valid; None if it is.
    """

    name: str
    targets: tuple[tuple[str, str], ...]
    default_graph: str | None
    error: str | None

    def binding(self) -> Binding:
        """The target that the profile names.

        Raises:
            InputError: the profile is not valid.
        """
        if self.error is not None:
            raise InputError(f"profile '{self.name}' is not valid: {self.error}")
        ((kind, target),) = self.targets
        return Binding(kind, target, self.default_graph, f"profile '{self.name}'")


@dataclass(frozen=True, slots=True)
class Alias:
    """A stored query of a server under a short name.

    Attributes:
        server: the server; None for the default one.
        graph: the graph; None for the default one.
        query: the name of the stored query.
        args: the parameters that the arguments of the command fill, in order.
        params: fixed parameters.
        format: the output format; None for the default one.
    """

    name: str
    server: str | None
    graph: str | None
    query: str
    args: tuple[str, ...]
    params: Mapping[str, object]
    format: str | None


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The content of the file. Without a file, everything has its default.

    Attributes:
        path: the file.
        actor: the actor of direct writes.
        servers: the addresses of servers by name.
        clusters: the roots of clusters by name.
        default_server: the server of commands that name no graph.
        default_graph: the graph of commands that name a server but no graph.
        default_store: the storage of commands that name no graph.
        output: the default output format of queries.
        width: the maximum width of a column of a table.
        layout: `truncate` or `wrap`.
    """

    path: Path
    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    default_server: str | None = None
    default_graph: str | None = None
    default_store: str | None = None
    output: str | None = None
    width: int | None = None
    layout: str = LAYOUTS[0]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)

    def server(self, name: str) -> str:
        """The address of a server.

        Raises:
            InputError: there is no such server.
        """
        return self._named("server", self.servers, name, "a URL begins with http:// or https://")

    def profile(self, name: str) -> Profile:
        """A profile.

        Raises:
            InputError: there is no such profile.
        """
        return self._named("profile", self.profiles, name, "'omnigraph profile list' shows them")

    def alias(self, name: str) -> Alias:
        """An alias.

        Raises:
            InputError: there is no such alias.
        """
        return self._named("alias", self.aliases, name, "write it into the section 'aliases'")

    def defaults_binding(self) -> Binding | None:
        """The target of commands that name no graph and no profile."""
        if self.default_server is not None:
            return Binding("server", self.default_server, self.default_graph, f"defaults.server of {self.path}")
        if self.default_store is not None:
            return Binding("store", self.default_store, None, f"defaults.store of {self.path}")
        return None

    def _named(self, what: str, known: Mapping[str, T], name: str, hint: str) -> T:
        if name in known:
            return known[name]
        from omnigraph.lang.names import did_you_mean

        raise InputError(
            f"there is no {what} '{cut(name)}' in {self.path}", hint=did_you_mean(name, sorted(known)) or hint
        )


_READ = "omnigraph.config"
"""Key in the context of a command: the configuration."""


def read_config() -> OperatorConfig:
    """Read the configuration of the user, once for each command. Unknown names are reported on stderr.

    Raises:
        InputError: the file cannot be read, or is not valid.
    """
    import click

    context = click.get_current_context(silent=True)
    if context is None:
        return _read_config()
    if _READ not in context.meta:
        context.meta[_READ] = _read_config()
    found: OperatorConfig = context.meta[_READ]
    return found


def _read_config() -> OperatorConfig:
    try:
        path = home() / "config.yaml"
    except InputError:  # nobody has written a configuration there
        return OperatorConfig(Path("~/.omnigraph/config.yaml"))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return OperatorConfig(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if all(line.strip()[:1] in (b"", b"#") for line in data.splitlines()):
        return OperatorConfig(path)
    from omnigraph.lang.documents import read_document

    return _Reader(path).config(read_document(data, str(path)))


class _Reader:
    """Reads the sections of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self, document: Value) -> OperatorConfig:
        top = _known(document, ("operator", "servers", "clusters", "defaults", "profiles", "aliases"))
        operator = _known(top.get("operator"), ("actor",))
        servers = {name: self._address(one) for name, one in _entries(top.get("servers"), ("url",), "url")}
        clusters = {name: one.text() for name, one in _entries(top.get("clusters"), ("root",), "root")}
        defaults = _known(
            top.get("defaults"),
            ("server", "store", "default_graph", "output", "table_max_column_width", "table_cell_layout"),
        )
        server, store, graph = (_text(defaults.get(name)) for name in ("server", "store", "default_graph"))
        if store is not None and (server is not None or graph is not None):
            other = "server" if server is not None else "default_graph"
            raise defaults["store"].error(f"'store' and '{other}' exclude each other")
        if server is not None and not is_address(server) and server not in servers:
            raise defaults["server"].error(f"there is no server '{cut(server)}'", "declare it in the section 'servers'")
        profiles = {name: self._profile(name, one, servers, clusters) for name, one in _section(top.get("profiles"))}
        return OperatorConfig(
            self._path,
            _text(operator.get("actor")),
            servers,
            clusters,
            server,
            graph,
            store,
            _choice(defaults.get("output"), FORMATS),
            _width(defaults.get("table_max_column_width")),
            _choice(defaults.get("table_cell_layout"), LAYOUTS) or LAYOUTS[0],
            profiles,
            {name: self._alias(name, one, servers) for name, one in _section(top.get("aliases"))},
        )

    def _address(self, value: Value) -> str:
        address = value.text()
        if not is_address(address):
            raise value.error("this is not the address of a server", "write http://HOST:PORT or https://HOST")
        if "?" in address or "#" in address:
            raise value.error("the address of a server has no query", "store a token with 'omnigraph login'")
        if "@" in address.partition("://")[2].partition("/")[0]:
            raise value.error(
                "the address of a server has no user and password", "store a token with 'omnigraph login'"
            )
        return address

    def _profile(self, name: str, value: Value, servers: Mapping[str, str], clusters: Mapping[str, str]) -> Profile:
        members = _known(value, (*KINDS, "default_graph"))
        targets = tuple((kind, members[kind].text()) for kind in KINDS if kind in members)
        graph = _text(members.get("default_graph"))
        return Profile(name, targets, graph, _profile_error(targets, graph, servers, clusters))

    def _alias(self, name: str, value: Value, servers: Mapping[str, str]) -> Alias:
        members = _known(value, ("server", "graph", "query", "args", "params", "format"))
        server = _text(members.get("server"))
        if server is not None and not is_address(server) and server not in servers:
            raise members["server"].error(f"there is no server '{cut(server)}'", "declare it in the section 'servers'")
        if "query" not in members:
            raise value.error("the query is missing", "write query: with the name of a stored query")
        args = tuple(one.text() for one in members["args"].texts()) if "args" in members else ()
        if len(set(args)) < len(args):
            raise members["args"].error("a parameter is listed twice")
        params: Mapping[str, object] = {}
        if "params" in members:
            members["params"].members()
            params = members["params"].plain()
        return Alias(
            name,
            server,
            _text(members.get("graph")),
            members["query"].text(),
            args,
            params,
            _choice(members.get("format"), FORMATS),
        )


def _profile_error(
    targets: tuple[tuple[str, str], ...], graph: str | None, servers: Mapping[str, str], clusters: Mapping[str, str]
) -> str | None:
    """Why a profile cannot be used."""
    if len(targets) != 1:
        return "give exactly one of 'server', 'cluster' and 'store'"
    ((kind, target),) = targets
    if kind == "server" and not is_address(target) and target not in servers:
        return f"there is no server '{cut(target)}'"
    if kind == "cluster" and "/" not in target and target not in clusters:
        return f"there is no cluster '{cut(target)}'"
    if kind == "store" and graph is not None:
        return "'store' and 'default_graph' exclude each other"
    if kind == "store" and is_address(target):
        return "the store is the address of a server: write server: instead"
    return None


def is_address(text: str) -> bool:
    """Whether a text is an address with http or https."""
    return text.lower().startswith(("http://", "https://"))


def without_password(address: str) -> str:
    """An address for messages, also without a query, which could have a token."""
    head, slashes, rest = address.partition("?")[0].partition("#")[0].partition("//")
    host, slash, path = rest.partition("/")
    return f"{head}{slashes}{host.rpartition('@')[2]}{slash}{path}"


def _known(value: Value | None, names: tuple[str, ...]) -> dict[str, Value]:
    """The known members of an object without null. Others are reported on stderr, without their values."""
    if value is None or value.content is None:
        return {}
    import click

    members = value.members()
    for name, one in members.items():
        if name not in names:
            from omnigraph.lang.names import did_you_mean

            near = did_you_mean(name, names)
            where = f"{one.document}, line {one.line}: {one.path}"
            click.echo(f"warning: {cut(where, 300)}: unknown name, ignored{f'; {near}' if near else ''}", err=True)
    return {name: one for name, one in members.items() if name in names and one.content is not None}


def _section(value: Value | None) -> list[tuple[str, Value]]:
    """The named entries of a section."""
    if value is None or value.content is None:
        return []
    return list(value.members().items())


def _entries(value: Value | None, names: tuple[str, ...], needed: str) -> list[tuple[str, Value]]:
    """The needed member of each named entry of a section."""
    found = []
    for name, one in _section(value):
        members = _known(one, names)
        if needed not in members:
            raise one.error(f"'{needed}' is missing")
        found.append((name, members[needed]))
    return found


def _text(value: Value | None) -> str | None:
    return None if value is None else value.text()


def _choice(value: Value | None, choices: tuple[str, ...]) -> str | None:
    if value is None:
        return None
    if value.text() not in choices:
        raise value.error(f"'{cut(value.text())}' is not one of {', '.join(choices)}")
    return value.text()


def _width(value: Value | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value.content, int) or isinstance(value.content, bool) or value.content < MIN_WIDTH:
        raise value.error(f"expected a number of at least {MIN_WIDTH}")
    return value.content
