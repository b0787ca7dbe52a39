"""`omnigraph optimize`: its report."""

from __future__ import annotations

from tests.cli.shell import Shell


def grown(shell: Shell, graph: str) -> None:
    for name in ("Ann", "Ben", "Cid"):
        shell.add_person(graph, name)


def test_optimize_prints_a_report(shell: Shell, graph: str) -> None:
    grown(shell, graph)
    said = shell.run("optimize", graph)
    assert said.stderr == f"omnigraph optimize → {graph} (direct, local)\n"
    header, *tables = said.stdout.splitlines()
    assert header == f"optimize {graph} — 2 datasets"
    assert tables[1] == "  node:Person: frags 3 → 1 ✓"
    again = shell.run("optimize", "--uri", graph, "--engine", "local", "--quiet")
    assert again.stderr == ""
    assert again.stdout.splitlines()[2] == "  node:Person: no-op"


def test_optimize_prints_json(shell: Shell, graph: str) -> None:
    grown(shell, graph)
    done = shell.json("optimize", graph, "--quiet")
    assert (done["uri"], done["engine"]) == (graph, "local")
    assert done["why"] == "0.0 MiB to rewrite; Spark is used from 4.0 GiB"
    (person,) = [table for table in done["datasets"] if table["type_key"] == "node:Person"]
    assert (person["fragments_removed"], person["fragments_added"]) == (3, 1)
    assert (person["committed"], person["skipped"], person["pending_indexes"]) == (True, None, [])
    assert person["published_dataset_version"] == person["lance_head_version"]
    assert done["commit"]["graph_commit_id"] == shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    assert shell.json("optimize", graph, "--quiet")["commit"] is None
