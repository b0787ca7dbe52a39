"""`omnigraph fmt`: canonical form, without loss of comments or content."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from tests.cli.shell import Shell

UGLY = "// people\nnode   Person{name:String @key /* who */ age:I32?}"


def test_formatted_files_are_unchanged(shell: Shell) -> None:
    result = shell.run("fmt", "--check", shell.schema, shell.queries)
    assert result.exit_code == 0
    assert result.output == "2 files, 0 would change\n"


def test_check_changes_nothing(shell: Shell) -> None:
    path = shell.write("ugly.pg", UGLY)
    result = shell.run("fmt", "--check", path)
    assert result.exit_code == 1
    assert f"would format {path}" in result.output
    assert shell.read("ugly.pg") == UGLY


def test_files_are_replaced_and_keep_their_mode(shell: Shell) -> None:
    path = shell.write("ugly.pg", UGLY)
    Path(path).chmod(0o640)
    assert shell.run("fmt", path).exit_code == 0
    formatted = shell.read("ugly.pg")
    assert formatted != UGLY
    assert "// people" in formatted
    assert "/* who */" in formatted
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640
    assert shell.run("fmt", "--check", path).exit_code == 0
    assert [p.name for p in shell.root.iterdir() if p.name.startswith(".")] == []


def test_a_broken_file_is_skipped_and_the_others_are_formatted(shell: Shell) -> None:
    broken = shell.write("broken.gq", "query {")
    shell.write("ugly.pg", UGLY)
    result = shell.run("fmt", str(shell.root))
    assert result.exit_code == 1
    assert "parse error" in result.stderr
    assert shell.read("broken.gq") == "query {"
    assert shell.read("ugly.pg") != UGLY
    assert broken in result.stderr


def test_hidden_directories_are_skipped(shell: Shell) -> None:
    shell.write("deep/er/ugly.pg", UGLY)
    shell.write(".hidden/ugly.pg", UGLY)
    assert shell.run("fmt", str(shell.root)).exit_code == 0
    assert shell.read("deep/er/ugly.pg") != UGLY
    assert shell.read(".hidden/ugly.pg") == UGLY


def test_standard_input_can_be_formatted(shell: Shell) -> None:
    result = shell.run("fmt", "--language", "pg", "-", stdin=UGLY)
    assert result.exit_code == 0
    assert result.output.startswith("// people\nnode Person {\n")
    assert shell.run("fmt", "-", stdin=UGLY).exit_code == 2


def test_standard_input_can_be_checked(shell: Shell) -> None:
    pretty = shell.run("fmt", "--language", "pg", "-", stdin=UGLY).output
    refused = shell.run("fmt", "--check", "--language", "pg", "-", stdin=UGLY)
    assert (refused.exit_code, refused.output) == (1, "would format <stdin>\n1 file, 1 would change\n")
    assert shell.run("fmt", "--check", "--language", "pg", "-", stdin=pretty).exit_code == 0
    report = json.loads(shell.run("fmt", "--check", "--json", "--language", "pg", "-", stdin=UGLY).output)
    assert report["files"] == [{"path": "<stdin>", "status": "changed"}]
    assert shell.run("fmt", "--json", "--language", "pg", "-", stdin=UGLY).exit_code == 2


def test_fmt_prints_json(shell: Shell) -> None:
    shell.write("broken.gq", "query {")
    report = json.loads(shell.run("fmt", "--check", "--json", str(shell.root)).output)
    assert report["check"] is True
    statuses = {Path(file["path"]).name: file["status"] for file in report["files"]}
    assert statuses == {"broken.gq": "error", "people.gq": "unchanged", "people.pg": "unchanged"}


def test_invalid_utf8_is_reported(shell: Shell) -> None:
    path = shell.write("latin.pg", b"// caf\xe9\nnode A { x: String @key }\n")
    result = shell.run("fmt", path)
    assert result.exit_code == 1
    assert "not UTF-8" in result.stderr
    assert Path(path).read_bytes() == b"// caf\xe9\nnode A { x: String @key }\n"
