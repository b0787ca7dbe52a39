"""What a restricted session does not see shows in no result, error, suggestion, plan, schema or blob."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.engine.row_scope import RowRules, Rows, compile_condition
from omnigraph.errors import AccessDeniedError, CompileError, InputError, NotFoundError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.read.context.trace import Entry
from omnigraph.restricted import store

SCHEMA = """
interface Named { name: String  pay: I64? }
node Person implements Named {
    key: String @key
    owner: String?
    team: String?
    secret: String? @unique
    bio: String? @index(bio, kind="fts")
    face: Vector(2)?
    photo: Blob?
}
node Place implements Named { code: String @key }
node Vault { code: String @key }
edge Knows: Person -> Person { since: I64?  why: String? }
edge Lives: Person -> Place
edge Opens: Person -> Vault
"""
PEOPLE = {"ann": "kim", "bob": "kim", "cid": "lee", "dan": "lee", "eve": "kim", "fay": None}
KNOWS = ("ann bob", "bob cid", "cid dan", "dan eve", "eve ann", "ann fay", "eve bob")
RULES = RowRules(
    {"node:Person": "$.owner = $actor or $.team in $groups", "node:Vault": Rows.HIDDEN},
    {"node:Person": ("secret", "pay"), "node:Place": ("pay",), "edge:Knows": ("why",)},
    actor="kim",
    groups=("red",),
)
SHOWN = ("ann", "bob", "eve")
HIDDEN_WORDS = ("Vault", "Opens", "opens", "secret", "pay", "why", "cid", "dan", "fay", "lee")


def people() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "type": "Person",
            "data": {
                "key": key,
                "name": f"name of {key}",
                "owner": owner,
                "secret": f"secret of {key}",
                "bio": f"fox {'fox ' * number} runs",
                "face": [float(number), 1.0],
                "photo": "base64:YWJj",
                "pay": number,
            },
        }
        for number, (key, owner) in enumerate(PEOPLE.items())
    ]
    rows += [{"type": "Place", "data": {"code": "x", "name": "X", "pay": 7}}, {"type": "Vault", "data": {"code": "v"}}]
    rows += [
        {"edge": "Knows", "from": one, "to": other, "data": {"id": f"{one}-{other}", "since": 1, "why": "why"}}
        for one, other in map(str.split, KNOWS)
    ]
    rows += [{"edge": "Lives", "from": key, "to": "x", "data": {"id": f"{key}-x"}} for key in PEOPLE]
    rows += [{"edge": "Opens", "from": key, "to": "v", "data": {"id": f"{key}-v"}} for key in PEOPLE]
    return rows


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(people(), mode="append")
        graph.ensure_indexes()
        yield graph


@pytest.fixture
def shown(whole: Graph) -> Graph:
    return whole.restricted(RULES)


@pytest.fixture
def copy(tmp_path: Path, shown: Graph) -> Iterator[Graph]:
    """A graph with the visible schema and the visible entities only."""
    with omnigraph.init(tmp_path / "copy", shown.schema.source) as graph:
        graph.load(list(_records(shown)), mode="append")
        graph.ensure_indexes()
        yield graph


KEYS = "query q() { match { $p: Person } return { $p.key as key } order { key } }"


def _records(graph: Graph) -> Iterator[dict[str, Any]]:
    for line in b"".join(graph.export()).splitlines():
        record = orjson.loads(line)
        if "key" in record["data"] or "code" in record["data"]:
            del record["data"]["id"]
        yield record


QUERIES = (
    "query q() { match { $p: Person } return { $p.* } order { $p.key } }",
    "query q() { match { $p: Person } return { count($p) as n, min($p.key) as k, collect($p.owner) as o } }",
    "query q() { match { $p: Person  $p knows{1,} $x } return { $p.key, $x.key } order { $p.key, $x.key } }",
    "query q() { match { $p: Person  $p knows $x } return { $p.key, count($x) as n } order { $p.key } }",
    "query q() { match { shortest $w: $p knows{1,} $x  $p: Person { key: 'ann' } } return { $x.key, length($w) } }",
    "query q() { match { $p: Person  not { $p knows $x } } return { $p.key } order { $p.key } }",
    "query q() { match { $p: Person  optional { $p knows $x } } return { $p.key, $x.key } order { $p.key, $x.key } }",
    "query q() { match { $n: Named } return { $n.name, type($n) as t } order { $n.name } }",
    "query q() { match { $p: Person  $p $e:(*) $x } return { type($e) as t, count(*) as n } order { t } }",
    'query q() { match { $p: Person } return { $p.key, bm25($p.bio, "fox") as b } order { b desc } limit 9 }',
    "query q() { match { $p: Person } return { $p.key, nearest($p.face, [9.0, 1.0]) as d } order { d } limit 2 }",
)


@pytest.mark.parametrize("text", QUERIES)
def test_results_and_plans_are_those_of_a_graph_without_the_hidden_rows(text: str, shown: Graph, copy: Graph) -> None:
    text = text.replace("'ann'", '"ann"')
    expected = copy.query(text).to_pylist()
    assert expected
    assert shown.query(text).to_pylist() == expected
    assert shown.prepare(text)().to_pylist() == expected
    assert asyncio.run(_async(shown, text)) == expected
    # Explanations of a restricted session use neither caches nor stored topologies. All rows of the copy fit the rule.
    same = copy.restricted(RowRules({"node:Person": RULES.types["node:Person"]}, actor="kim", groups=("red",)))
    plans = [graph.explain(text, analyze=True) for graph in (shown, same)]
    assert _steps(plans[0].steps) == _steps(plans[1].steps)
    assert [one.to_json() for one in plans[0].statistics] == [one.to_json() for one in plans[1].statistics]
    _says_nothing(str(shown.explain(text, analyze=True)))


def _steps(steps: Sequence[Entry]) -> list[Any]:
    """The plan with its estimates and row counts, without times and bytes."""
    return [
        (
            *(one.action, one.text, one.estimate, one.rows, one.reason, one.pushed, one.columns, one.edge_access),
            _steps(one.steps),
        )
        for one in steps
    ]


async def _async(graph: Graph, text: str) -> list[dict[str, Any]]:
    return (await graph.async_query(text)).to_pylist()


def _says_nothing(text: str) -> None:
    assert [word for word in HIDDEN_WORDS if word in text] == []


WRONG = (
    ("query q() { match { $p: Person } return { $p.secre } }", "secre"),
    ("query q() { match { $p: Person } return { $p.pays } }", "pays"),
    ("query q() { match { $p: Vaul } return { $p.code } }", "Vaul"),
    ("query q() { match { $p: Person  $p open $v } return { $v.code } }", "open"),
    ("query q() { match { $n: Named } return { $n.pays } }", "pays"),
    ("query q() { match { $p: Person  $p $k:knows $x } return { $k.wh } }", "wh"),
)


@pytest.mark.parametrize(("text", "word"), WRONG)
def test_errors_suggest_nothing_hidden(text: str, word: str, shown: Graph, copy: Graph) -> None:
    for graph in (shown, copy):
        with pytest.raises(CompileError) as caught:
            graph.query(text)
        said = f"{caught.value.message} {caught.value.hint}".replace(f"'{word}'", "").replace(f" {word}", "")
        if graph is shown:
            first = said
            _says_nothing(said)
    assert said == first


def test_the_schema_has_no_hidden_types_and_properties(shown: Graph) -> None:
    _says_nothing(shown.schema.source)
    assert sorted(shown.schema.catalog.nodes) == ["Person", "Place"]
    assert sorted(shown.schema.catalog.edges) == ["Knows", "Lives"]
    assert shown.schema.show() == shown.schema.source
    for (kind, name), identity in shown.schema.accepted.identities.items():
        _says_nothing(f"{kind} {name} {' '.join(identity.properties)}")
    numbers = [
        number
        for one in shown.accepted_schema.identities.values()
        for number in (one.type_id, one.incarnation, *one.properties.values())
        if number is not None
    ]
    assert sorted(numbers) == list(range(1, len(numbers) + 1)), "gaps would tell of hidden types and properties"
    assert shown.accepted_schema.next_id == len(numbers) + 1


def test_a_property_that_one_type_hides_leaves_the_interface_but_not_other_types(whole: Graph) -> None:
    graph = whole.restricted(RowRules(hidden_properties={"node:Person": ("pay",)}))
    assert "pay" not in graph.catalog.interfaces["Named"].properties
    assert "pay" not in graph.catalog.nodes["Person"].properties
    assert graph.query("query q() { match { $p: Place } return { $p.pay } }").to_pylist() == [{"p.pay": 7}]


def test_an_entity_and_its_blob_exist_only_if_they_are_visible(shown: Graph, whole: Graph) -> None:
    assert shown.entity("Person", "cid") is None
    assert shown.entity("Knows", "ann-fay") is None
    found = shown.entity("Person", "ann")
    assert found is not None
    assert {"secret", "pay"}.isdisjoint(found)
    assert shown.blob("Person", "ann", "photo").read(0, 3) == b"abc"
    for call in (
        lambda: shown.blob("Person", "cid", "photo"),
        lambda: shown.blob("Vault", "v", "photo"),
        lambda: shown.entity("Vault", "v"),
        lambda: shown.log("Person", "cid"),
        lambda: shown.blame("Person", "cid"),
        lambda: shown.log("Vault", "v"),
    ):
        with pytest.raises(NotFoundError) as caught:
            call()
        assert "secret" not in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(InputError) as caught_input:
        shown.blame("Person", "ann", "secret")
    assert "secret" not in str(caught_input.value.hint)
    assert {one.property for one in shown.blame("Person", "ann")}.isdisjoint({"secret", "pay"})


def test_exports_to_files_have_the_visible_entities(shown: Graph, tmp_path: Path) -> None:
    shown.export(tmp_path / "out", format="parquet")
    people = pq.read_table(next((tmp_path / "out").rglob("*Person*")))
    assert people["id"].to_pylist() == list(SHOWN)
    assert {"secret", "pay"}.isdisjoint(people.column_names)
    assert not list((tmp_path / "out").rglob("*Vault*"))
    shown.export(tmp_path / "out.ndjson")
    _says_nothing((tmp_path / "out.ndjson").read_text())


def test_commits_have_no_counts_receipts_and_members(whole: Graph, shown: Graph) -> None:
    whole.mutate('query hush() { insert Vault { code: "w" } }')
    listed = shown.commits.list(limit=2)
    assert listed.cursor is not None
    assert listed.removed == frozenset()
    assert [branch.name for branch in shown.branches] == ["main"]
    assert shown.tags.list() == []
    with shown.pin() as pinned:
        found = (*shown.commits, *listed.commits, shown.branch().head, pinned.commit)
    for commit in (*found, shown.commits.get(whole.branch().head.id)):
        assert commit.counts is None
        assert commit.members == ()
        assert not {"load", "query", "affected_nodes"} & {name for name, _ in commit.labels}


def test_a_schema_change_keeps_hidden_things_hidden(whole: Graph, shown: Graph) -> None:
    whole.schema.apply(
        SCHEMA.replace("node Vault {", "node Vault { depth: I64? ").replace("team:", "level: I64? team:")
    )
    whole.mutate('query q() { update Person set { level: 3 } where key = "ann" }')
    assert shown.query(
        "query q() { match { $p: Person } return { $p.key, $p.level } order { $p.key } }"
    ).to_pylist() == [
        {"p.key": "ann", "p.level": 3},
        {"p.key": "bob", "p.level": None},
        {"p.key": "eve", "p.level": None},
    ]
    _says_nothing(shown.schema.show())
    assert len(shown.diff(list(shown.commits)[-2].id, shown.branch().head.id)["Person"].updated()) == 1


def test_a_snapshot_of_another_session_is_refused(whole: Graph, shown: Graph) -> None:
    text = "query q() { match { $p: Person } return { $p.key } }"
    for reader, snapshot in ((shown, whole.snapshot()), (whole, shown.snapshot())):
        with pytest.raises(InputError):
            reader.query(text, at=snapshot)
    assert len(shown.query(text, at=shown.snapshot())) == 3
    with pytest.raises(AccessDeniedError):
        shown.session.store.tables.at(whole.snapshot().pin("node:Person").ref)


READS = {
    "snapshot",
    "entity",
    "blob",
    "log",
    "blame",
    "export",
    "to_networkx",
    "to_numpy",
    "to_pyg",
    "draw",
    "pin",
    "query",
    "async_query",
    "prepare",
    "explain",
    "branch",
    "diff",
}
WRITES = {"load", "merge", "mutate"}
NEITHER = {"close", "refresh"}
REFUSED: dict[str, Callable[[Graph], object]] = {
    "revert": lambda graph: graph.revert("x"),
    "cherry_pick": lambda graph: graph.cherry_pick("x"),
    "restore": lambda graph: graph.restore("Person", ["ann"], at="x"),
    "verify": lambda graph: graph.verify(),
    "repair": lambda graph: graph.repair(),
    "indexes": lambda graph: graph.indexes(),
    "ensure_indexes": lambda graph: graph.ensure_indexes(),
    "optimize": lambda graph: graph.optimize(),
    "status": lambda graph: graph.status(),
    "upkeep": lambda graph: graph.upkeep(),
    "watch_upkeep": lambda graph: list(graph.watch_upkeep(Event())),
    "cleanup": lambda graph: graph.cleanup(keep=1),
    "backup": lambda graph: graph.backup("/nowhere"),
    "embed": lambda graph: graph.embed(),
    "restricted": lambda graph: graph.restricted(RULES),
    "write_tables": lambda graph: graph.write_tables(None, None),  # type: ignore[arg-type]
}
OTHERS_REFUSED: tuple[Callable[[Graph], object], ...] = (
    lambda graph: graph.pipeline,
    lambda graph: graph.recovery,
    lambda graph: graph.schema.plan("node A { k: String @key }"),
    lambda graph: graph.schema.apply("node A { k: String @key }"),
    lambda graph: graph.branches.update("b"),
    lambda graph: graph.branch().transaction().__enter__(),
    lambda graph: graph.export("/nowhere", engine="spark"),
    lambda graph: graph.load([], mode="append", engine="spark"),
)


def test_every_method_is_restricted_or_refused() -> None:
    methods = {name for name, _ in inspect.getmembers(Graph, inspect.isfunction) if not name.startswith("_")}
    assert methods == READS | WRITES | NEITHER | set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_work_on_the_whole_graph_is_refused(name: str, shown: Graph) -> None:
    with pytest.raises(AccessDeniedError):
        REFUSED[name](shown)


@pytest.mark.parametrize("number", range(len(OTHERS_REFUSED)))
def test_other_work_on_the_whole_graph_is_refused(number: int, shown: Graph) -> None:
    with pytest.raises(AccessDeniedError):
        OTHERS_REFUSED[number](shown)


def test_a_condition_that_cannot_be_computed_names_no_value(whole: Graph) -> None:
    whole.mutate('query q() { update Person set { pay: 9223372036854775807 } where key = "cid" }')
    graph = whole.restricted(RowRules({"node:Person": "$.pay + 1 > 0"}))
    with pytest.raises(AccessDeniedError) as caught:
        graph.query("query q() { match { $p: Person } return { $p.key } }")
    assert "9223372036854775807" not in f"{caught.value} {caught.value.hint}"
    assert caught.value.__cause__ is None


def test_a_condition_that_changes_with_time_is_refused(whole: Graph) -> None:
    accepted = whole.accepted_schema
    with pytest.raises(InputError):
        compile_condition("now() > now()", "node:Person", accepted)
    for text in ("true } delete Person where (true", "owner = $other", "salary = 1", "$"):
        with pytest.raises(OmnigraphError):
            compile_condition(text, "node:Person", accepted)


def test_a_type_without_a_rule_that_fits_is_hidden(whole: Graph) -> None:
    rules = RowRules({"node:Person": "$.salary = 1"})
    assert sorted(whole.restricted(rules).catalog.nodes) == ["Place", "Vault"]
    nothing = whole.restricted(RowRules(otherwise=Rows.HIDDEN))
    assert nothing.schema.source.strip() == ""
    assert b"".join(nothing.export()) == b""
    key = whole.restricted(RowRules(hidden_properties={"node:Place": ("code",)}))
    assert "Place" not in key.catalog.nodes


@pytest.fixture
def renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Graph, str]]:
    """A graph whose types and properties had other names, and a commit from that time."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    before = "node Task { name: String @key  owner: String?  salary: I64? }  node Safe { code: String @key }"
    after = """
    node Task { name: String @key  holder: String? @rename_from("owner")  pay: I64? @rename_from("salary") }
    node Vault @rename_from("Safe") { code: String @key }
    """
    with omnigraph.init(tmp_path / "renamed", before) as graph:
        tasks = [{"name": name, "owner": owner, "salary": 7} for name, owner in (("a", "kim"), ("b", "lee"))]
        graph.load({"Task": tasks, "Safe": [{"code": "v"}]}, mode="append")
        old = graph.branch().head.id
        graph.schema.apply(after)
        yield graph, old


def test_rules_apply_to_types_and_properties_under_their_former_names(renamed: tuple[Graph, str]) -> None:
    graph, old = renamed
    rules = RowRules({"node:Task": "$.holder = $actor", "node:Vault": Rows.HIDDEN}, {"node:Task": ["pay"]}, "kim")
    kim = graph.restricted(rules)
    lines = [orjson.loads(line) for line in b"".join(kim.export(at=old)).splitlines()]
    assert lines == [{"type": "Task", "data": {"id": "a", "name": "a", "owner": "kim"}}]
    assert kim.entity("Task", "a", at=old) == {"id": "a", "name": "a", "owner": "kim"}
    changes = kim.diff(old, "main").to_json(), kim.log("Task", "a").to_json()
    texts = (kim.schema.show(at=old), kim.schema.source, *changes)
    assert not [word for word in ("Safe", "Vault", "salary", "pay", "'b'") for text in texts if word in str(text)]
    with pytest.raises(CompileError) as caught:
        kim.query("query q() { match { $v: Safe } return { $v.code } }")
    assert "Vault" not in str(caught.value.hint)


@pytest.mark.parametrize(
    "rules",
    [
        RowRules({"node:Persn": Rows.HIDDEN}),
        RowRules({"Person": Rows.HIDDEN}),
        RowRules(hidden_properties={"node:Person": ["secrets"]}),
        RowRules(hidden_properties={"edge:Knew": ["why"]}),
    ],
)
def test_a_misspelt_rule_is_an_error(rules: RowRules, whole: Graph) -> None:
    with pytest.raises(InputError, match="row rules:"):
        whole.restricted(rules)
    with pytest.raises(InputError, match="row rules:"):
        whole.restricted(RowRules(), rules)


def test_vectors_of_hidden_texts_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    schema = 'node Note { key: String @key  text: String?  place: Vector(2)? @embed("text") }'
    with omnigraph.init(tmp_path / "notes", schema) as graph:
        shown = graph.restricted(RowRules(hidden_properties={"node:Note": ["text"]}))
        assert set(shown.catalog.nodes["Note"].properties) == {"key"}


@pytest.mark.parametrize("text", QUERIES)
def test_an_explanation_does_not_tell_of_writes_to_hidden_rows(text: str, shown: Graph, whole: Graph) -> None:
    text = text.replace("'ann'", '"ann"')

    def explained() -> list[Any]:
        found = [shown.explain(text, analyze=analyze) for analyze in (False, True, True)]
        assert "byte" not in str(found[2])
        assert found[2].spent is not None
        assert found[2].spent.peak == found[2].spent.read == 0
        return [[_without_times(one.to_json()), one.spent and one.spent.rows] for one in found]

    before = explained()
    whole.mutate('query q() { update Person set { bio: "a fox of others", secret: "new" } where key = "cid" }')
    whole.mutate('query q() { insert Knows { from: "cid", to: "fay" } }')
    assert explained() == before


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if name != "milliseconds"}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def test_the_schemas_and_states_of_many_branches_are_not_all_kept(
    whole: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches are created and deleted. A snapshot of one whose schema is no longer cached stays readable."""
    monkeypatch.setattr(store, "_SCHEMAS", 2)
    monkeypatch.setattr(store, "_STATES", 2)
    graph = whole.restricted(RULES)
    first = graph.snapshot()
    for number in range(6):
        whole.branches.create(f"b{number}")
        found = graph.query(KEYS, branch=f"b{number}")
        assert [row["key"] for row in found] == list(SHOWN)
    restricted = graph.session.store
    assert isinstance(restricted, store.RestrictedStore)
    assert max(len(one._held) for one in (restricted._schemas, restricted._by_hash, restricted._states)) <= 2
    restricted._by_hash.clear()
    assert "Vault" not in graph.session.schemas.at(first).catalog.nodes
