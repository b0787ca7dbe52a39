"""`omnigraph cleanup`: the preview, and the removal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.shell import Shell
from ulid_transform import ulid_at_time

from omnigraph.commit.lease import Owner
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.storage.objects import open_store


def aged(shell: Shell, graph: str) -> None:
    for name in ("Ann", "Ben", "Cid", "Dan"):
        shell.add_person(graph, name)


def test_without_consent_cleanup_is_a_preview(shell: Shell, graph: str) -> None:
    aged(shell, graph)
    said = shell.run("cleanup", graph, "--keep", "2")
    assert said.stdout == ""
    first, table, manifest, last = said.stderr.splitlines()
    assert first.startswith(f"cleanup {graph} (keep 2) — would remove 3 versions (")
    assert first.endswith(" bytes) across 2 datasets")
    assert table == "  node:Person: 3 versions"
    assert manifest == "  __manifest: 3 versions"
    assert last == "nothing was changed; add --confirm to run the cleanup"
    assert shell.run("cleanup", graph, "--keep", "2").stderr == said.stderr


def test_with_consent_cleanup_removes_versions(shell: Shell, graph: str) -> None:
    aged(shell, graph)
    done = shell.run("cleanup", "--uri", graph, "--keep", "1", "--older-than", "0s", "--confirm")
    assert done.stdout.startswith(f"cleanup {graph} (keep 1, older than 0 seconds) — removed 4 versions (")
    assert done.stderr == f"omnigraph cleanup → {graph} (direct, local)\n"
    assert shell.run("cleanup", graph, "--keep", "1").stderr.startswith(
        f"cleanup {graph} (keep 1) — would remove 0 versions (0 bytes)"
    )
    old = shell.json("commit", "list", graph)["commits"][2]["graph_commit_id"]
    assert "no longer exists" in shell.fails("export", "--uri", graph, "--snapshot", str(old))


@pytest.mark.parametrize(
    ("age", "shown"),
    [("1d", "1 day"), ("2w", "14 days"), ("36h", "36 hours"), ("60s", "1 minute"), ("90s", "90 seconds")],
)
def test_the_age_limit_is_shown_in_words(shell: Shell, graph: str, age: str, shown: str) -> None:
    assert f" (older than {shown}) " in shell.run("cleanup", graph, "--older-than", age).stderr


def test_cleanup_prints_json(shell: Shell, graph: str) -> None:
    aged(shell, graph)
    said = shell.json("cleanup", graph, "--keep", "3", "--older-than", "1w")
    assert (said["preview"], said["keep_versions"], said["older_than_secs"]) == (True, 3, 604800)
    done = shell.json("cleanup", graph, "--keep", "3", "--confirm", "--quiet")
    assert (done["uri"], done["preview"], done["older_than_secs"]) == (graph, False, None)
    (person,) = [table for table in done["datasets"] if table["type_key"] == "node:Person"]
    assert person["old_versions_removed"] == 2
    assert person["bytes_removed"] > 0
    assert (person["forks_removed"], person["orphans_removed"], person["error"]) == (0, 0, None)
    assert (done["loads_removed"], done["load_bytes_removed"]) == (0, 0)


def test_cleanup_reports_the_running_job_that_protects_files(shell: Shell, graph: str) -> None:
    here, name = Owner.here(), ulid_at_time(1_000_000_000).lower()
    aside = ulid_at_time(1_000_000_001).lower()
    with at_work(open_store(graph), WorkKind.LOAD, name=name):
        rows = Path(graph) / "__staging" / aside / "rows.arrow"
        rows.parent.mkdir(parents=True)
        rows.write_bytes(b"rows")
        said = shell.run("cleanup", graph, "--keep", "9", "--orphans-older-than", "0s", "--confirm").stdout
        told = shell.json("cleanup", graph, "--keep", "9", "--orphans-older-than", "0s")["loads_at_work"]
    _, first, second = said.splitlines()
    began = str(told[0]["began"])[:19]
    assert first == (
        f"  kept orphaned files that are newer than {began}+00:00: load {name} "
        f"(process {here.pid} on {here.host}) has been running since then"
    )
    assert second.startswith(
        f"  kept the staged files of {aside}, running since 2001-09-09T01:46:41+00:00, last heartbeat"
    )
    assert [(load["name"], load["kind"], load["on_tables"], load["pid"]) for load in told] == [
        (name, "load", True, here.pid),
        (aside, None, False, None),
    ]


@pytest.mark.parametrize("said", [(), ("--older-than", "soon"), ("--keep", "-1"), ("--keep", "1", "--older-than", "3")])
def test_an_invalid_retention_policy_is_refused(shell: Shell, graph: str, said: tuple[str, ...]) -> None:
    assert "Error" in shell.fails("cleanup", graph, *said, code=2)


def test_cleanup_of_a_remote_graph_needs_consent(shell: Shell) -> None:
    refused = shell.fails("cleanup", "s3://graphs/some", "--keep", "1", "--confirm")
    assert "cannot be undone" in refused
    assert "--yes" in refused
