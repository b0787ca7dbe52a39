"""The graph that a command works on: its storage, or a graph of a server. Options, profiles and defaults name it."""

# See docs/decisions/0330-a-command-resolves-its-target-once.md

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from omnigraph.cli.files import is_graph
from omnigraph.cli.operator_config import Binding, OperatorConfig, is_address, read_config, without_password
from omnigraph.cli.project import NAME, find_project
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.settings import PROFILE, STORE

if TYPE_CHECKING:
    from omnigraph.client.clients import GraphClient


@dataclass(frozen=True, slots=True)
class Served:
    """A graph of a server.

    Attributes:
        server: the address of the server.
        graph_id: the graph; None if the address is that of the graph itself.
        token: the bearer token.
    """

    server: str
    graph_id: str | None
    token: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """The address of the graph, for people."""
        base = self.server.rstrip("/")
        return base if self.graph_id is None else f"{base}/graphs/{self.graph_id}"

    def connect(self) -> GraphClient:
        """A client of the graph. It sends nothing yet."""
        from omnigraph.client.connect import connect, connect_to_graph_address

        if self.graph_id is None:
            return connect_to_graph_address(self.server, token=self.token)
        return connect(self.server, token=self.token, graph_id=self.graph_id)


Place = str | Served
"""A graph: the address of its storage, or a graph of a server."""


@dataclass(frozen=True, slots=True)
class Target:
    """The values of the options that name the graph of a command.

    Attributes:
        uri: the argument URI.
        uri_option: `--uri`.
        store: `--store`.
        server: `--server`: a name of the configuration, or an address.
        graph_id: `--graph`.
        profile: `--profile`.
        stored_only: names of the parameters of the command that need the storage of the graph.
    """

    uri: str | None = None
    uri_option: str | None = None
    store: str | None = None
    server: str | None = None
    graph_id: str | None = None
    profile: str | None = None
    stored_only: tuple[str, ...] = ()

    @property
    def is_given(self) -> bool:
        """Whether an option names a graph. Profiles of the environment and defaults do not count."""
        return any(one is not None for one in (*self._stores, self.server, self.profile))

    @property
    def has_default(self) -> bool:
        """Whether the profile of the environment or the defaults of the configuration name a graph."""
        return self._binding(read_config()) is not None

    @property
    def _stores(self) -> tuple[str | None, ...]:
        return (self.uri, self.uri_option, self.store)

    def place(self) -> Place:
        """The graph of a command that works on storage and with servers.

        Raises:
            UsageError: the options exclude each other, or name no graph.
            InputError: the configuration is not valid, or a name is unknown.
        """
        found = self._explicit_store()
        if found is not None:
            return found
        config = read_config()
        if self.server is not None:
            return self._served(config, self.server, None)
        binding = self._binding(config)
        if binding is None:
            raise click.UsageError(f"{_no_graph()}, --server NAME|URL, or --profile NAME")
        if binding.kind == "server" and binding.source.endswith(NAME):
            return self._served(config, binding.target, None, is_graph=self.graph_id is None)
        if binding.kind == "server":
            return self._served(config, binding.target, binding.default_graph)
        if binding.kind == "cluster":
            raise InputError(
                f"{binding.source} is bound to a cluster, and '{_command()}' needs a server or a store",
                hint="give --store URI, or --server NAME|URL",
            )
        self._refuse_graph(binding.source)
        return binding.target

    def storage(self) -> str:
        """The storage of the graph of a command that does not work with servers. Raises the errors of `place`."""
        found = self._explicit_store()
        if found is not None:
            return found
        binding = self._binding(read_config())
        if binding is None:
            raise click.UsageError(_no_graph())
        if binding.kind != "store":
            raise click.UsageError(
                f"'{_command()}' needs the storage of a graph, and {binding.source} is bound to a {binding.kind}."
                " Give --store URI."
            )
        return binding.target

    def server_only(self) -> Served:
        """The server of a command that works with servers only. Default graphs are ignored.

        Raises:
            UsageError: no server is named.
            InputError: the configuration is not valid, or a name is unknown.
        """
        config = read_config()
        if self.server is not None:
            return _connection(config, self.server, None)
        binding = self._binding(config)
        if binding is None:
            raise click.UsageError("name a server: --server NAME|URL, or --profile NAME")
        if binding.kind != "server":
            raise click.UsageError(
                f"'{_command()}' needs a server, and {binding.source} is bound to a {binding.kind}."
                " Give --server NAME|URL."
            )
        return _connection(config, binding.target, None)

    def _explicit_store(self) -> str | None:
        """The storage that the options name.

        Raises:
            UsageError: the options exclude each other, or name a server.
        """
        named = [one for one in self._stores if one is not None]
        for one in named:
            if is_address(one):
                shown = cut(without_password(one))
                raise click.UsageError(f"{shown} is the address of a server: give --server {shown}")
        if len(named) > 1:
            raise click.UsageError("name the graph once: URI, --uri and --store are the same")
        if named and self.server is not None:
            raise click.UsageError("name the graph once: --server and --store exclude each other")
        if not named:
            return None
        self._refuse_graph("the address")
        return named[0]

    def _refuse_graph(self, source: str) -> None:
        if self.graph_id is not None:
            raise click.UsageError(f"--graph selects a graph of a server, and {source} names one graph. Omit --graph.")

    def _binding(self, config: OperatorConfig) -> Binding | None:
        """The binding of the profile, the environment, the project file, or the defaults."""
        name, store = self.profile or PROFILE.text(), STORE.text()
        if name:
            return config.profile(name).binding()
        if store:
            if is_address(store):
                raise click.UsageError(f"{STORE.name} is the address of a server: use a profile, or --server")
            return Binding("store", store, None, STORE.name)
        project = find_project()
        return (project and project.binding()) or config.defaults_binding()

    def _served(
        self, config: OperatorConfig, server: str, default_graph: str | None, *, is_graph: bool = False
    ) -> Served:
        context = click.get_current_context()
        for param in context.command.params:
            name = param.name or ""
            if name in self.stored_only and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{param.opts[0]} needs the storage of the graph, and does not apply to a graph of a server."
                    " Omit it, or give --store URI."
                )
        if is_graph:
            return _connection(config, server, None)
        graph_id = self.graph_id or default_graph or config.default_graph
        found = _connection(config, server, graph_id)
        return found if graph_id is not None else _of_one_graph(found)


def _connection(config: OperatorConfig, server: str, graph_id: str | None) -> Served:
    from omnigraph.cli.credentials import token_for

    name = None if is_address(server) else server
    address = server if name is None else config.server(name)
    return Served(address, graph_id, token_for(address, config, name))


def _of_one_graph(server: Served) -> Served:
    """A server without the id of a graph: its address is that of a graph, unless it lists its graphs.

    Raises:
        UsageError: the server has graphs to choose from.
        InputError: the server lists no graphs.
    """
    from omnigraph.errors import ForbiddenError, MethodNotAllowedError, NotFoundError

    try:
        with server.connect() as client:
            graphs = client.graphs.list()
    except (NotFoundError, MethodNotAllowedError):
        return server
    except ForbiddenError as error:
        raise ForbiddenError(
            f"the server does not list its graphs: {error.message}", hint="name the graph: --graph ID"
        ) from error
    if not graphs:
        raise InputError(f"the server {server.uri} has no graphs that you may see")
    names = ", ".join(graph.graph_id for graph in graphs)
    raise click.UsageError(f"name a graph of the server: --graph ID, one of {cut(names, 500)}")


def _command() -> str:
    return " ".join(click.get_current_context().command_path.split()[1:])


def _no_graph() -> str:
    """The message for a command that names no graph, or the name of a graph that does not exist.

    Raises:
        MissingParameter: the first argument is a graph, so the last required one is missing.
    """
    context = click.get_current_context()
    required = [one for one in context.command.params if isinstance(one, click.Argument) and one.required]
    given = context.params.get(required[0].name or "") if required else None
    if isinstance(given, str) and is_graph_name(given):
        raise click.MissingParameter(ctx=context, param=required[-1])
    first = "as the first argument, or " if takes_graph_first(context.command) else ""
    # An argument that is not the path of a graph is the name of a query. It may be a misspelt path.
    name = context.params.get("name") if _may_be_query_name(context.command) else None
    problem = "name a graph" if name is None else f"there is no graph at '{cut(name)}': name one"
    return f"{problem} {first}with --store URI"


def _may_be_query_name(command: click.Command) -> bool:
    return any(param.name == "name" and not param.required for param in command.params)


def is_graph_name(text: str) -> bool:
    """Whether a text is the address of a graph, and not the name of a query, a branch or a commit."""
    return "://" in text or "/" in text or text.endswith(".omni") or is_graph(text)


def takes_address(command: click.Command, parameter: str) -> bool:
    """Whether a command takes its graph as the given parameter: `uri` (the argument) or `uri_option`."""
    return any(param.name == parameter for param in command.params)


def takes_graph_first(command: click.Command) -> bool:
    """Whether the first argument of a command can be its graph."""
    if takes_address(command, "uri"):
        return True
    is_open_ended = any(isinstance(param, click.Argument) and param.nargs < 1 for param in command.params)
    return takes_address(command, "uri_option") and not is_open_ended
