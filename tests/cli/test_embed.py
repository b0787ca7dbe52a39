"""`omnigraph embed`: its changes, its output, and the progress bar."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.cli.shell import Shell

from omnigraph.cli.progress import progress_display
from omnigraph.engine.engines import JobProgress
from omnigraph.upkeep.vectors import Counts, EmbedProgress
from omnigraph.write.load import LoadPhase, LoadProgress

SCHEMA = """\
node Note { name: String @key  text: String?  vec: Vector(4)? @embed("text") }
node Tag { name: String @key }
"""
ROWS = "".join(f'{{"type":"Note","data":{{"name":"n{n}","text":"text {n % 2}"}}}}\n' for n in range(4))


@pytest.fixture
def graph(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "first")
    path = str(shell.root / "notes")
    shell.run("init", path, "--schema", shell.write("notes.pg", SCHEMA))
    shell.run("load", path, "--data", shell.write("notes.ndjson", ROWS), "--mode", "append", "--quiet", "--no-embed")
    return path


def newest(shell: Shell, graph: str) -> object:
    return shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]


def test_missing_vectors_are_computed(shell: Shell, graph: str) -> None:
    done = shell.run("embed", graph, "--missing", "--as", "ann", "--message", "at last")
    assert done.stdout == "Note (vec): 4 changed, 0 up to date; 2 texts computed with first, 0 cached\n"
    assert f"omnigraph embed → {graph} (direct, local)\n" in done.stderr
    commit = shell.json("commit", "list", graph)["commits"][0]
    assert (commit["actor_id"], commit["message"], commit["labels"]) == ("ann", "at last", {"model": "first"})
    again = shell.run("embed", graph, "--quiet")
    assert again.stdout == "Note (vec): 0 changed, 4 up to date; 0 texts computed with first, 0 cached\n"
    assert newest(shell, graph) == commit["graph_commit_id"]


def test_vectors_of_another_model_are_recomputed(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("embed", graph, "--quiet")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "second")
    assert shell.json("embed", graph, "--quiet", "--missing")["types"][0]["changed"] == 0
    # The mock gives the same vectors under any name: every text is embedded again, and no vector changes.
    found = shell.json("embed", graph, "--quiet", "--stale")
    assert found == {
        "uri": graph,
        "branch": "main",
        "model": "second",
        "which": "stale",
        "types": [
            {
                "type": "Note",
                "properties": ["vec"],
                "unknown": [],
                "rows": 4,
                "changed": 0,
                "right": 4,
                "computed": 2,
                "cached": 0,
            }
        ],
        "commit": None,
    }


def test_a_check_writes_nothing(shell: Shell, graph: str) -> None:
    head = newest(shell, graph)
    assert "4 would change" in shell.run("embed", graph, "--quiet", "--check").stdout
    assert newest(shell, graph) == head


def test_embed_supports_a_branch_and_an_expected_head(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "draft", "--uri", graph)
    head = newest(shell, graph)
    receipt = shell.json("embed", graph, "--quiet", "--branch", "draft", "--if-commit", str(head))
    assert (receipt["branch"], receipt["types"][0]["changed"]) == ("draft", 4)
    assert shell.json("embed", graph, "--quiet", "--check")["types"][0]["changed"] == 4
    other = shell.run("embed", graph, "--quiet", "--if-commit", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert other.exit_code == 4


def test_types_and_properties_without_computed_vectors_are_refused(shell: Shell, graph: str) -> None:
    assert "'Tag' has no computed vector" in shell.fails("embed", graph, "--quiet", "--type", "Tag")
    assert "'text' is not a computed vector" in shell.fails("embed", graph, "--quiet", "--property", "text")
    path = str(shell.root / "plain")
    shell.run("init", path, "--schema", shell.write("plain.pg", "node Tag { name: String @key }"))
    assert shell.run("embed", path, "--quiet").stdout == f"{path} has no @embed properties\n"


# Progress bar


def test_a_terminal_shows_a_progress_bar() -> None:
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120, color_system=None)
    with progress_display(shown=True, console=console) as shown:
        assert shown.rows is not None
        assert shown.tasks is not None
        assert shown.vectors is not None
        shown.rows(LoadProgress(LoadPhase.READING, 12_000, 1, {}))
        shown.tasks(JobProgress("comparing ids", 3, 1, 20, 7, 2))
        console.file.flush()
        shown.vectors(EmbedProgress("Note", 50, 100, Counts(50, 40, 10, 30, 20)))
    text = seen.getvalue()
    assert "embedding Note" in text
    assert "50 rows, 30 computed, 20 cached" in text


def test_the_progress_bar_shows_spark_tasks() -> None:
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120, color_system=None)
    with progress_display(shown=True, console=console) as shown:
        assert shown.rows is not None
        assert shown.tasks is not None
        shown.rows(LoadProgress(LoadPhase.READING, 12_000, 1, {}))
        shown.tasks(JobProgress("comparing ids", 3, 1, 20, 7, 2))
    assert "comparing ids" in seen.getvalue()
    assert "step 2 of 3, 7 of 20 tasks, 2 retried, 12,000 rows" in seen.getvalue()


@pytest.mark.parametrize("shown", [True, False])
def test_a_pipe_gets_no_progress_bar(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(shown=shown) as bar:
        assert (bar.rows, bar.tasks, bar.vectors, bar.notes) == (None, None, None, shown)
    assert capsys.readouterr() == ("", "")
