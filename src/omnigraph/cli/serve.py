"""The `serve` command: the HTTP server."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from omnigraph.cli.target import Target
from omnigraph.errors import InputError
from omnigraph.settings import BIND, LOG_LEVEL, REQUIRE_ALL_GRAPHS, UNAUTHENTICATED

_EXTRA = ("fastapi", "httptools", "jwt", "opentelemetry", "prometheus_client", "pydantic", "starlette", "uvicorn")
"""The packages of the extra `server`."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("uri", required=False, metavar="[GRAPH]")
@click.option("--store", "--uri", metavar="URI", help="Storage of the one graph to serve: a path, file:// or s3://.")
@click.option("--graph", "graph_id", metavar="ID", default="default", help="Id of this graph.  [default: default]")
@click.option("--queries", type=_DIRECTORY, metavar="DIRECTORY", help="Stored queries of this graph: .gq files.")
@click.option("--policy", type=_FILE, metavar="FILE", help="Policy bundle of this graph.")
@click.option("--config", type=_FILE, metavar="FILE", help="YAML file with several graphs, instead of --store.")
@click.option("--bind", metavar="HOST:PORT", help="Address; port 0 for a free one.  [default: 127.0.0.1:8080]")
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Number of processes.  [default: 1]")
@click.option("--unauthenticated", is_flag=True, help="Allow everyone to read and write, if there are no tokens.")
@click.option("--require-all-graphs", is_flag=True, help="Stop at start if a graph cannot be served.")
def serve(
    uri: str | None,
    store: str | None,
    graph_id: str,
    queries: Path | None,
    policy: Path | None,
    config: Path | None,
    bind: str | None,
    workers: int,
    unauthenticated: bool,
    require_all_graphs: bool,
) -> None:
    """Serve a graph over HTTP, or the graphs of a configuration.

    Prints OMNIGRAPH_LISTEN_ADDR=host:port when it listens. Tokens and limits come from environment variables. SIGTERM
    stops it after the requests in flight; SIGHUP reads the tokens, policies and stored queries again.
    """
    target = Target(uri=uri, store=store)
    named = [uri, store, config].count(None)
    if named < 2 or (named == 3 and not target.has_default):
        raise click.UsageError("name the graphs once: as the first argument, with --store URI, or with --config FILE")
    store = target.storage() if config is None else None
    if config is not None and queries is not None:
        raise click.UsageError("--queries belongs to --store: name the directories of queries in the file")
    if config is not None and policy is not None:
        raise click.UsageError("--policy belongs to --store: name the policies in the file")
    from omnigraph.server.arenas import limit_arenas

    limit_arenas()  # before the imports below start threads
    try:
        from omnigraph.server.configuration import Configuration, make_app, read_graphs, read_server_policy_path
        from omnigraph.server.options import Limits
        from omnigraph.server.process import Launch, address_of
        from omnigraph.server.process import bind as listen
        from omnigraph.server.process import serve as run
        from omnigraph.server.served_graphs import GraphConfig
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise InputError(f"{error.name} is not installed", hint="pip install 'omnigraph[server]'") from error
    from omnigraph.cli.scope import blob_sources

    if config is not None:
        graphs = read_graphs(config)
        server_policy = read_server_policy_path(config)
    else:
        graphs = {graph_id: GraphConfig(str(store), queries, tuple(blob_sources()), policy)}
        server_policy = None
    is_open = unauthenticated or UNAUTHENTICATED.flag()
    require_all = require_all_graphs or REQUIRE_ALL_GRAPHS.flag()
    configuration = Configuration(tuple(graphs.items()), is_open, require_all, server_policy)
    listening = listen(bind or BIND.text())

    def ready() -> None:
        click.echo(f"OMNIGRAPH_LISTEN_ADDR={address_of(listening)}")
        sys.stdout.flush()

    launch = Launch(make_app, configuration, Limits.of_settings(), LOG_LEVEL.text())
    with listening:
        code = run(launch, listening, workers, ready)
    if code:
        raise SystemExit(code)
