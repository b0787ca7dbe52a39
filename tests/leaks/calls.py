"""Calls of every member of the handles, with names that exist in one graph of a pair, in both, or in none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event
from typing import Any

from tests.leaks.probes import BRANCH_NAMES, LOADS, MUTATIONS, QUERIES, TASKS, TYPE_NAMES, commits, lines
from tests.leaks.worlds import TYPES, UNKNOWN, VAULT, World
from tests.policy.test_enforcement import client

from omnigraph import BranchHandle, Transaction
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.graph import Graph

Calls = Callable[[Graph, World], Iterator[Callable[[], Any]]]
"""The calls of a member: of a handle of the actor, in a graph of a pair."""


def each(call: Callable[..., Any], *choices: Iterable[Any]) -> Iterator[Callable[[], Any]]:
    """Calls with one argument varied at a time. The last choice of each argument is used in the other calls."""
    lists = [list(one) for one in choices]
    usual = [one[-1] for one in lists]
    for place, options in enumerate(lists):
        for option in options:
            given = [*usual[:place], option, *usual[place + 1 :]]
            yield partial(call, *given)


def states(world: World) -> list[Any]:
    return [*commits(world), datetime(2020, 1, 1, tzinfo=UTC), 1, 99, None]


BRANCHES = (*BRANCH_NAMES, "release", None)


def _one(call: Callable[[Graph], Any]) -> Calls:
    return lambda graph, world: iter([lambda: call(graph)])


def _changed(diff: Any) -> Any:
    return [diff.stat, diff.to_json()]


def _head(graph: Graph, name: str) -> Any:
    return graph.branch(name).head


def _in_transaction(graph: Graph, use: Callable[[Transaction], Any]) -> Any:
    with graph.branch("release").transaction() as tx:
        return use(tx)


def _written(graph: Graph) -> Any:
    return graph.write_tables(WriteRequest("main", WriterKind.LOAD), lambda _: Prepared(()))


def _with(manager: Any) -> Any:
    with manager as found:
        return found.manifest_version


def _queries(run: Callable[..., Any], world: World) -> Iterator[Callable[[], Any]]:
    yield from each(lambda text: run(text), QUERIES)
    yield from each(lambda branch: run(QUERIES[3], branch=branch), BRANCHES)
    yield from each(lambda at: run(QUERIES[3], at=at), states(world))


def _network(graph: Any) -> Any:
    return [list(graph.nodes(data=True)), list(graph.edges(keys=True, data=True))]


def _rows(given: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in given:
        if "type" in row:
            found.setdefault(row["type"], []).append(row["data"])
        else:
            ends = {"from": row["from"], "to": row["to"]}
            found.setdefault(row["edge"], []).append(ends)
    return found


def _loads(load: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    yield from each(lambda rows: load(_rows(rows), mode="merge"), LOADS)
    yield from each(lambda rows: load(_rows(rows), mode="append"), LOADS)
    yield lambda: load(_rows(LOADS[0]), mode="merge", check=True)


def _release(graph: Graph) -> BranchHandle:
    return graph.branch("release")


IDS = (*TASKS, "deep-0", "vault-1", "hoard-0")

READS: dict[str, Calls] = {
    "Graph.catalog": _one(lambda g: g.catalog),
    "Graph.accepted_schema": _one(
        lambda g: [g.accepted_schema.catalog, str(sorted(g.accepted_schema.identities.items(), key=str))]
    ),
    "Graph.schema_source": _one(lambda g: g.schema_source),
    "Graph.snapshot": lambda g, w: each(lambda at: g.snapshot(commit=at).to_json(1), commits(w)),
    "Graph.entity": lambda g, w: each(
        lambda at, name, entity: g.entity(name, entity, at=at), states(w), TYPE_NAMES, IDS
    ),
    "Graph.blob": lambda g, w: each(
        lambda at, name, entity, prop: g.blob(name, entity, prop, at=at).read(0, 3),
        states(w),
        TYPE_NAMES,
        IDS,
        ("pay", "title", "none", "photo"),
    ),
    "Graph.log": lambda g, w: each(lambda name, entity: g.log(name, entity), TYPE_NAMES, IDS),
    "Graph.blame": lambda g, w: each(lambda name, entity: g.blame(name, entity), TYPE_NAMES, IDS),
    "Graph.export": lambda g, w: each(lambda name: list(g.export(types=[name])), TYPE_NAMES),
    "Graph.to_networkx": lambda g, w: each(lambda name: _network(g.to_networkx(name)), TYPE_NAMES),
    "Graph.to_numpy": lambda g, w: each(lambda at: g.to_numpy(at=at), states(w)),
    "Graph.to_pyg": _one(lambda g: g.to_pyg()),
    "Graph.draw": lambda g, w: each(lambda name: g.draw(name).svg, TYPE_NAMES),
    "Graph.pin": lambda g, w: each(lambda at: _with(g.pin(at=at)), commits(w)),
    "Graph.query": lambda g, w: _queries(g.query, w),
    "Graph.prepare": lambda g, w: each(lambda text: g.prepare(text)(), QUERIES),
    "Graph.async_query": lambda g, w: each(lambda text: asyncio.run(g.async_query(text)), QUERIES),
    "Graph.explain": lambda g, w: _queries(lambda *args, **options: str(g.explain(*args, **options)), w),
    "Graph.refresh": _one(lambda g: g.refresh().to_json(1)),
    "Graph.diff": lambda g, w: each(
        lambda before, after: _changed(g.diff(before, after)), [*commits(w), "release"], [*commits(w), "main"]
    ),
    "BranchHandle.head": lambda g, w: each(lambda name: _head(g, name), BRANCH_NAMES),
    "BranchHandle.snapshot": _one(lambda g: _release(g).snapshot().to_json(1)),
    "BranchHandle.entity": lambda g, w: each(lambda entity: _release(g).entity("Task", entity), IDS),
    "BranchHandle.log": lambda g, w: each(lambda entity: _release(g).log("Task", entity), IDS),
    "BranchHandle.blame": lambda g, w: each(lambda entity: _release(g).blame("Task", entity), IDS),
    "BranchHandle.blob": lambda g, w: each(lambda entity: _release(g).blob("Task", entity, "photo").size, IDS),
    "BranchHandle.export": _one(lambda g: list(_release(g).export())),
    "BranchHandle.query": lambda g, w: each(lambda text: _release(g).query(text), QUERIES[:6]),
    "BranchHandle.prepare": lambda g, w: each(lambda text: _release(g).prepare(text)(), QUERIES[:6]),
    "BranchHandle.async_query": _one(lambda g: asyncio.run(_release(g).async_query(QUERIES[0]))),
    "Branches.list": _one(lambda g: g.branches.list()),
    "Branches.__iter__": _one(lambda g: list(g.branches)),
    "Branches.__contains__": lambda g, w: each(lambda name: name in g.branches, ("nosuch", "main")),
    "Commits.__iter__": _one(lambda g: list(g.commits)),
    "Commits.get": lambda g, w: each(lambda commit: g.commits.get(commit), [*commits(w), UNKNOWN[:6]]),
    "Commits.list": lambda g, w: each(lambda branch: g.commits.list(branch=branch), BRANCHES),
    "Tags.__iter__": _one(lambda g: list(g.tags)),
    "Tags.list": _one(lambda g: g.tags.list()),
    "Recovery.list": _one(lambda g: g.recovery.list()),
    "Recovery.pending": _one(lambda g: g.recovery.pending()),
    "Schema.source": _one(lambda g: g.schema.source),
    "Schema.catalog": _one(lambda g: g.schema.catalog),
    "Schema.accepted": _one(lambda g: [str(g.schema.accepted.identities), g.schema.accepted.next_id]),
    "Schema.show": lambda g, w: each(lambda at: g.schema.show(at=at), states(w)),
    "Schema.plan": _one(lambda g: g.schema.plan(TYPES + VAULT)),
    "Changes.of": lambda g, w: each(lambda commit: g.changes.of(commit), commits(w)),
    "Changes.poll": lambda g, w: each(lambda name: g.changes.poll(start="beginning", types=[name]), TYPE_NAMES),
    "Changes.follow": _one(lambda g: list(g.changes.follow(start="beginning", timeout=0))),
    "Changes.baseline": lambda g, w: each(lambda name: list(g.changes.baseline(types=[name])), TYPE_NAMES),
    "PreparedQuery.__call__": _one(lambda g: g.prepare(QUERIES[0])()),
    "GraphMembers.snapshot": lambda g, w: each(
        lambda branch, at: client(g).snapshot(branch, at=at), BRANCHES, [*commits(w), None]
    ),
    "GraphMembers.query": lambda g, w: each(lambda text: client(g).query(text), QUERIES[:6]),
    "GraphMembers.export": lambda g, w: each(lambda name: list(client(g).export(types=[name])), TYPE_NAMES),
    "GraphMembers.export_parts": lambda g, w: each(lambda at: list(client(g).export_parts(at=at)), commits(w)),
    "BranchMembers.list": _one(lambda g: client(g).branches.list()),
    "CommitMembers.list": lambda g, w: each(lambda branch: client(g).commits.list(branch=branch), BRANCHES),
    "CommitMembers.retrieve": lambda g, w: each(lambda commit: client(g).commits.retrieve(commit), commits(w)),
    "CommitMembers.changes": lambda g, w: each(lambda commit: client(g).commits.changes(commit), commits(w)),
    "ChangeMembers.poll": lambda g, w: each(
        lambda name: client(g).changes.poll(start="beginning", types=[name]), TYPE_NAMES
    ),
    "ChangeMembers.baseline": lambda g, w: each(
        lambda name: list(client(g).changes.baseline(types=[name])), TYPE_NAMES
    ),
    "SchemaMembers.get": lambda g, w: each(
        lambda branch, at: client(g).schema.get(branch=branch, at=at), BRANCHES, [*commits(w), None]
    ),
    "BlobMembers.stat": lambda g, w: each(
        lambda name, entity, at: client(g).blobs.stat(name, entity, "photo", snapshot=at),
        TYPE_NAMES,
        IDS,
        [*commits(w), None],
    ),
    "BlobMembers.get": lambda g, w: each(lambda entity: client(g).blobs.get("Task", entity, "photo"), IDS),
    "PreparedMembers.call": _one(lambda g: client(g).prepare(QUERIES[0])()),
}
"""Calls that read."""

WRITES: dict[str, Calls] = {
    "Graph.load": lambda g, w: _loads(g.load),
    "Graph.mutate": lambda g, w: each(lambda text: g.mutate(text), MUTATIONS),
    "Graph.revert": lambda g, w: each(lambda commit: g.revert(commit), commits(w)),
    "Graph.cherry_pick": lambda g, w: each(lambda commit: g.cherry_pick(commit, "release"), ["hidden-tag", UNKNOWN]),
    "Graph.restore": lambda g, w: each(lambda entity: g.restore("Task", entity, "v1"), ("lee-1", "kim-1")),
    "Graph.embed": _one(lambda g: g.embed()),
    "Graph.write_tables": _one(_written),
    "BranchHandle.mutate": lambda g, w: each(lambda text: _release(g).mutate(text), MUTATIONS[:6]),
    "BranchHandle.embed": _one(lambda g: _release(g).embed()),
    "BranchHandle.load": lambda g, w: each(lambda rows: _release(g).load(_rows(rows), mode="merge"), LOADS[:3]),
    "BranchHandle.revert": lambda g, w: each(lambda commit: _release(g).revert(commit), commits(w)),
    "BranchHandle.cherry_pick": lambda g, w: each(lambda commit: _release(g).cherry_pick(commit), [UNKNOWN]),
    "BranchHandle.restore": _one(lambda g: _release(g).restore("Task", "lee-1", "v1")),
    "BranchHandle.transaction": _one(lambda g: _in_transaction(g, lambda tx: None)),
    "Transaction.mutate": _one(lambda g: _in_transaction(g, lambda tx: tx.mutate(MUTATIONS[3]))),
    "Transaction.load": _one(lambda g: _in_transaction(g, lambda tx: tx.load(_rows(LOADS[4]), mode="merge"))),
    "Transaction.query": _one(lambda g: _in_transaction(g, lambda tx: tx.query(QUERIES[0]))),
    "Transaction.snapshot": _one(lambda g: _in_transaction(g, lambda tx: tx.snapshot().manifest_version)),
    "Transaction.entity": _one(lambda g: _in_transaction(g, lambda tx: tx.entity("Task", "lee-1"))),
    "Branches.create": lambda g, w: each(
        lambda name, commit: g.branches.create(name, commit=commit), ("made", "v1", "x/y", "z"), [*commits(w), None]
    ),
    "Tags.create": lambda g, w: each(
        lambda name, branch: g.tags.create(f"tag-{name}-{branch}", branch=branch), ("a", "b"), [*BRANCH_NAMES, "main"]
    ),
    "Tags.delete": lambda g, w: each(
        lambda name: g.tags.delete(name), ("drafted", "hidden-tag", "nosuch", "tag-a-main")
    ),
    "Branches.reset": lambda g, w: each(lambda name, to: g.branches.reset(name, to), ("nosuch", "made"), commits(w)),
    "Branches.update": lambda g, w: each(lambda name: g.branches.update(name), ("nosuch", "hidden", "release")),
    "Graph.merge": lambda g, w: each(lambda source: g.merge(source), ("nosuch", "hidden", "draf", "release")),
    "BranchHandle.merge": _one(lambda g: _release(g).merge("main")),
    "Branches.delete": lambda g, w: each(lambda name: g.branches.delete(name), ("nosuch", "hidden", "made")),
    "GraphMembers.mutate": lambda g, w: each(lambda text: client(g).mutate(text), MUTATIONS[:6]),
    "GraphMembers.load": lambda g, w: each(lambda rows: client(g).load(lines(rows), mode="merge"), LOADS[:3]),
    "GraphMembers.load_ndjson": lambda g, w: each(
        lambda rows: client(g).load_ndjson(lines(rows), mode="append"), LOADS[:3]
    ),
    "BranchMembers.create": lambda g, w: each(
        lambda name, source: client(g).branches.create(name, source=source), ("of-client", "v1"), BRANCHES
    ),
    "BranchMembers.merge": lambda g, w: each(lambda source: client(g).branches.merge(source), ("nosuch", "hidden")),
    "BranchMembers.delete": lambda g, w: each(
        lambda name: client(g).branches.delete(name), ("nosuch", "hidden", "of-client")
    ),
    "SchemaMembers.apply": _one(lambda g: client(g).schema.apply("node Nonsense {")),
    "Schema.apply": _one(lambda g: g.schema.apply("node Nonsense {")),
    "Graph.verify": _one(lambda g: g.verify()),
    "Graph.repair": _one(lambda g: g.repair()),
    "Graph.indexes": _one(lambda g: g.indexes()),
    "Graph.ensure_indexes": _one(lambda g: g.ensure_indexes()),
    "Graph.optimize": _one(lambda g: g.optimize()),
    "Graph.status": _one(lambda g: g.status()),
    "Graph.upkeep": _one(lambda g: g.upkeep()),
    "Graph.watch_upkeep": _one(lambda g: next(g.watch_upkeep(Event()))),
    "Graph.cleanup": _one(lambda g: g.cleanup(keep=5, older_than=timedelta(days=1))),
    "Graph.backup": _one(lambda g: g.backup(f"{g.uri.removeprefix('file://')}-backup")),
}
"""Calls that may write, and maintenance, which only those who see the whole graph may start."""
