"""Peers of the benchmarks are installed once, in their own environment; benchmarks run without them."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_peers


def test_peers_are_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    lock.write_text("")
    commands: list[tuple[object, ...]] = []

    def runs(*command: object) -> bool:
        commands.append(command)
        return True

    monkeypatch.setattr(bench_peers, "runs", runs)
    place = tmp_path / "peers"
    assert bench_peers.main(place, lock) == 0
    assert "sync" in commands[0]
    commands.clear()
    assert bench_peers.main(place, lock) == 0
    assert all("sync" not in command for command in commands)
    lock.write_text("other")
    bench_peers.main(place, lock)
    assert any("sync" in command for command in commands)


def test_a_failed_installation_is_reported_and_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_peers, "runs", lambda *_: False)
    lock = tmp_path / "lock"
    lock.write_text("")
    assert bench_peers.main(tmp_path / "peers", lock) == 0
    assert "benchmarks run without what it lists" in capsys.readouterr().out
    assert not (tmp_path / "peers" / "installed.sha256").exists()
