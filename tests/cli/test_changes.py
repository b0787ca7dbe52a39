"""`omnigraph changes poll`, `changes baseline` and `commit changes`."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from tests.cli.shell import Shell


def test_a_poll_prints_blocks_and_a_cursor(shell: Shell, graph: str) -> None:
    first = shell.run("changes", "poll", graph).stdout.splitlines()
    assert first[0] == "(no new commits)"
    assert first[2] == "caught_up: true"
    cursor = first[1].removeprefix("cursor: ")
    commit = shell.add_person(graph, "Ann", actor="act-kim")
    shown = shell.run("changes", "poll", graph, "--cursor", cursor).stdout.splitlines()
    assert shown[0].startswith(f"commit {commit} 2")
    assert shown[0].endswith(" act-kim")
    assert shown[1] == "  insert node Person Ann"
    assert [line.partition(":")[0] for line in shown[2:]] == ["cursor", "caught_up"]


def test_a_poll_prints_json(shell: Shell, graph: str) -> None:
    commit = shell.add_person(graph, "Ann")
    shell.add_person(graph, "Ben")
    page = shell.json("changes", "poll", graph, "--start", "beginning")
    assert set(page) == {"blocks", "cursor", "caught_up"}
    assert page["blocks"][0]["cause"]["graph_commit_id"] == commit
    assert page["blocks"][0]["changes"][0]["after"]["properties"] == {"id": "Ann", "age": None, "name": "Ann"}
    after = shell.json("changes", "poll", graph, "--start", f"after:{commit}", "--type", "Person", "--op", "insert")
    assert [change["id"] for block in after["blocks"] for change in block["changes"]] == ["Ben"]
    assert shell.json("changes", "poll", graph, "--start", "beginning", "--kind", "edge")["blocks"][0]["changes"] == []


def test_pages_of_a_poll_are_continued(shell: Shell, graph: str) -> None:
    shell.run("load", graph, "--mode", "append", "--data", shell.write("people.jsonl", people("a", "b", "c")))
    page = shell.json("changes", "poll", graph, "--start", "beginning", "--limit", "2")
    assert set(page) == {"blocks", "next_page_token"}
    rest = shell.json("changes", "poll", graph, "--page-token", page["next_page_token"])
    found = [change["id"] for one in (page, rest) for block in one["blocks"] for change in block["changes"]]
    assert found == ["a", "b", "c"]


def people(*names: str) -> str:
    return "".join(json.dumps({"type": "Person", "data": {"name": name}}) + "\n" for name in names)


def test_changes_of_a_commit_are_paged_automatically(shell: Shell, graph: str) -> None:
    shell.run("load", graph, "--mode", "append", "--data", shell.write("people.jsonl", people("a", "b", "c")))
    head, genesis = (commit["graph_commit_id"] for commit in shell.json("commit", "list", graph)["commits"])
    lines = shell.run("commit", "changes", head, "--uri", graph, "--limit", "2").stdout.splitlines()
    assert lines[1:] == [f"  insert node Person {name}" for name in "abc"]
    found = shell.json("commit", "changes", head, "--uri", graph, "--limit", "2")
    assert [change["id"] for change in found["changes"]] == ["a", "b", "c"]
    assert "next_page_token" not in found
    assert "has no parent" in shell.fails("commit", "changes", genesis, "--uri", graph)
    assert "change cursor rejected: " in shell.fails("commit", "changes", head, "--uri", graph, "--page-token", "x")


def test_a_baseline_is_written_before_its_cursor_is_printed(shell: Shell, graph: str) -> None:
    commit = shell.add_person(graph, "Ann")
    out = shell.root / "people.jsonl"
    printed = shell.json("changes", "baseline", graph, "--out", str(out))
    *lines, last = out.read_text().splitlines()
    assert [json.loads(line)["data"]["id"] for line in lines] == ["Ann"]
    assert printed == {"snapshot": "manifest:main:v2", **json.loads(last)["baseline"]}
    assert printed["snapshot_commit_id"] == commit
    shell.add_person(graph, "Ben")
    page = shell.json("changes", "poll", graph, "--cursor", printed["resume_cursor"])
    assert [change["id"] for block in page["blocks"] for change in block["changes"]] == ["Ben"]
    assert not Path(f"{out}.lock").exists()
    names = shell.run("changes", "baseline", graph, "--out", str(out)).stdout.splitlines()
    assert [name.partition(":")[0] for name in names] == ["snapshot", "snapshot_commit_id", "resume_cursor"]


def test_two_baselines_do_not_write_one_file(shell: Shell, graph: str) -> None:
    out = shell.root / "people.jsonl"
    with open(f"{out}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another command holds" in shell.fails("changes", "baseline", graph, "--out", str(out))
    assert not out.exists()
    missing = str(shell.root / "none" / "x")
    assert f"cannot write {missing}: No such file" in shell.fails("changes", "baseline", graph, "--out", missing)


def test_the_message_of_a_commit_is_shown(shell: Shell, graph: str) -> None:
    commit = shell.add_person(graph, "Ann", message="add Ann\nand more")
    poll = ("changes", "poll", graph, "--start", "beginning")
    (line,) = [line for line in shell.run(*poll).stdout.splitlines() if line.startswith(f"commit {commit}")]
    assert line.endswith("  add Ann")
    assert shell.json(*poll)["blocks"][-1]["cause"]["message"] == "add Ann\nand more"
