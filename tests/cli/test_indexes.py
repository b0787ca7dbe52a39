"""`omnigraph indexes`: the coverage of indexes, and building them."""

from __future__ import annotations

from tests.cli.shell import Shell


def newest(shell: Shell, graph: str) -> object:
    return shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]


def test_listing_changes_nothing(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "Ann")
    assert shell.run("indexes", graph).stdout.splitlines() == [
        "node:Person.id btree: 0 of 1 rows",
        "node:Person.name fts: 0 of 1 rows",
        "edge:Knows.id btree: 0 of 0 rows",
        "edge:Knows.src btree: 0 of 0 rows",
        "edge:Knows.dst btree: 0 of 0 rows",
    ]
    assert newest(shell, graph) == head


def test_building_covers_all_rows(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    built = shell.run("indexes", "--build", "--uri", graph)
    assert built.stdout.splitlines()[0] == "node:Person.id btree: 1 of 1 rows"
    assert built.stderr == f"omnigraph indexes → {graph} (direct, local)\n"
    shell.add_person(graph, "Ben")
    assert shell.run("indexes", graph).stdout.splitlines()[0] == "node:Person.id btree: 1 of 2 rows"


def test_indexes_prints_json(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    first = shell.json("indexes", graph, "--build", "--quiet")
    assert first["indexes"][0] == {
        "type_key": "node:Person",
        "property": "id",
        "kind": "btree",
        "covered": 1,
        "uncovered": 0,
    }
    assert first["pending"] == []
    assert first["graph_commit_id"] == newest(shell, graph)
    assert shell.json("indexes", graph, "--build", "--quiet")["graph_commit_id"] is None
    assert list(shell.json("indexes", graph)) == ["indexes"]


def test_indexes_of_a_branch_can_be_built(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    shell.run("branch", "create", "draft", "--uri", graph)
    shell.run("indexes", graph, "--branch", "draft", "--build", "--quiet")
    assert shell.run("indexes", graph).stdout.splitlines()[0] == "node:Person.id btree: 0 of 1 rows"
    assert (
        shell.run("indexes", graph, "--branch", "draft").stdout.splitlines()[0] == "node:Person.id btree: 1 of 1 rows"
    )
    assert "there is no branch 'x'" in shell.fails("indexes", graph, "--branch", "x")


def test_a_missing_index_is_listed_with_its_reason(shell: Shell) -> None:
    schema = shell.write("vectors.pg", "node Doc { name: String @key  vec: Vector(2) @index }")
    uri = str(shell.root / "vectors")
    shell.run("init", uri, "--schema", schema)
    rows = shell.write("docs.ndjson", '{"type": "Doc", "data": {"name": "a", "vec": [1.0, 2.0]}}\n')
    assert shell.run("load", uri, "--data", rows, "--mode", "append", "--quiet").exit_code == 0
    lines = shell.run("indexes", uri, "--build", "--quiet").stdout.splitlines()
    assert "node:Doc.vec vector: 0 of 1 rows (fewer than 100000 vectors are searched exactly)" in lines


def test_indexes_of_a_snapshot_can_be_listed(shell: Shell, graph: str) -> None:
    before = shell.add_person(graph, "Ann")
    shell.run("indexes", graph, "--build", "--quiet")
    line = "node:Person.id btree: 0 of 1 rows"
    assert shell.run("indexes", graph, "--snapshot", str(before)).stdout.splitlines()[0] == line
    assert "omit --snapshot" in shell.fails("indexes", graph, "--snapshot", str(before), "--build", code=2)
    assert "not both" in shell.fails("indexes", graph, "--snapshot", str(before), "--branch", "main", code=2)
    assert "there is no commit or tag 'x'" in shell.fails("indexes", graph, "--snapshot", "x")
