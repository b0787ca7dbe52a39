"""Every denial leaves a record that is durable, and the audit does not grow without a limit."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.access import Denial
from omnigraph.errors import AccessDeniedError, InputError
from omnigraph.policy import DenialLog, Policy, denials

BUNDLE = {
    "version": 1,
    "groups": {"crew": ["kim"]},
    "rules": [{"id": "reads", "allow": {"actors": {"group": "crew"}, "actions": ["read"]}}],
}


def denial(number: int = 0) -> Denial:
    return Denial("/graphs/a", f"actor {number}", "change", "main", None, ("node:Person",), "reads", "no rule")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "state" / "denials.jsonl")
    assert list(log.records()) == []
    log.append(denial(), "policy.yaml")
    log.append(Denial("g", None, "read", None, "x", (), None, "no actor"), "policy.yaml")
    first, second = log.records()
    assert first.denial == denial()
    assert first.policy == "policy.yaml"
    assert first.time.endswith("+00:00")
    assert second.denial == Denial("g", None, "read", None, "x", (), None, "no actor")


def test_a_denied_request_leaves_a_record(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")
    omnigraph.init(tmp_path / "g", "node Person { name: String @key }").close()
    with omnigraph.open(tmp_path / "g", policy=Policy.read(BUNDLE, denials=log), actor="kim") as graph:
        assert graph.branch("main").head.branch == "main"
        with pytest.raises(
            AccessDeniedError, match="'kim' is not allowed the action change on branch 'main'"
        ) as raised:
            graph.mutate('query q() { insert Person { name: "ann" } }')
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("no rule of the policy allows change here")
    (found,) = log.records()
    assert found.denial.actor == "kim"
    assert (found.denial.action, found.denial.branch) == ("change", "main")
    assert found.denial.graph == graph.uri


def test_a_read_only_handle_leaves_a_record_and_writes_nothing_to_the_graph(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")
    omnigraph.init(tmp_path / "g", "node Person { name: String @key }").close()
    before = sorted(path for path in (tmp_path / "g").rglob("*"))
    policy = Policy.read(BUNDLE, denials=log)
    with (
        omnigraph.open(tmp_path / "g", read_only=True, policy=policy, actor="lee") as graph,
        pytest.raises(AccessDeniedError),
    ):
        graph.branches.list()
    assert len(list(log.records())) == 1
    assert sorted(path for path in (tmp_path / "g").rglob("*")) == before


def test_records_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    log = DenialLog(tmp_path / "denials.jsonl")
    log.append(denial(), "p")
    assert not flushed
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "1")
    log.append(denial(), "p")
    assert len(flushed) == 1


def test_threads_share_the_file(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")

    def work(first: int) -> None:
        for number in range(first, first + 50):
            DenialLog(log.path).append(denial(number), "p")

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.denial.actor for one in log.records()} == {f"actor {number}" for number in range(400)}


def test_the_files_have_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "LOG_BYTES", 4_000)
    log = DenialLog(tmp_path / "denials.jsonl")
    for number in range(200):
        log.append(denial(number), "p")
    kept = [one.denial.actor for one in log.records()]
    assert kept == [f"actor {number}" for number in range(200 - len(kept), 200)], "the newest ones, in their order"
    assert 10 < len(kept) < 100
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 4_000


def test_a_record_has_a_limited_size(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")
    long = "x" * 1_000_000
    log.append(Denial(long, long, "read", long, long, (long,) * 1_000, long, long), "p")
    assert log.path.stat().st_size < 20_000
    assert len(list(log.records())) == 1


def test_an_incomplete_line_of_a_crashed_writer_is_skipped(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")
    log.append(denial(1), "p")
    with log.path.open("ab") as file:
        file.write(b'{"time": "2026-')
    log.append(denial(2), "p")
    assert [one.denial.actor for one in log.records()] == ["actor 1", "actor 2"]


def test_a_text_of_a_request_cannot_add_a_line(tmp_path: Path) -> None:
    log = DenialLog(tmp_path / "denials.jsonl")
    log.append(Denial("g", 'kim\n{"time": "now"}', "read", "a\nb", None, (), None, "m"), "p")
    assert len(log.path.read_bytes().splitlines()) == 1


def test_a_failure_of_the_audit_is_logged_and_the_request_stays_denied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    log = DenialLog(tmp_path / "file" / "denials.jsonl")
    omnigraph.init(tmp_path / "g", "node Person { name: String @key }").close()
    with (
        caplog.at_level(logging.ERROR),
        omnigraph.open(tmp_path / "g", policy=Policy.read(BUNDLE, denials=log), actor="lee") as graph,
        pytest.raises(AccessDeniedError),
    ):
        graph.branches.list()
    assert "the audit cannot be written" in caplog.text
    assert '"actor":"lee"' in caplog.text


def test_an_audit_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "denials.jsonl").mkdir()
    with pytest.raises(InputError, match=r"denials\.jsonl cannot be read"):
        list(DenialLog(tmp_path / "denials.jsonl").records())
