"""`omnigraph schema plan`: the steps of a schema change, before it is applied."""

from __future__ import annotations

import json

from tests.cli.shell import SCHEMA, Shell


def test_equal_schemas_need_no_change(shell: Shell) -> None:
    result = shell.run("schema", "plan", "--from", shell.schema, "--to", shell.schema)
    assert result.exit_code == 0
    assert result.output == "supported: yes\nno schema changes\n"


def test_a_supported_change_lists_its_steps(shell: Shell) -> None:
    new = shell.write("new.pg", SCHEMA.replace("age: I32?", "age: I64?\n    city: String?"))
    result = shell.run("schema", "plan", "--from", shell.schema, "--to", new)
    assert result.exit_code == 0
    assert result.output.startswith("supported: yes\n")
    assert result.output.count("[safe]") == 2


def test_a_refused_change_has_a_code_and_a_hint(shell: Shell) -> None:
    new = shell.write("new.pg", SCHEMA.replace("age: I32?", "age: I32?\n    email: String"))
    result = shell.run("schema", "plan", "--from", shell.schema, "--to", new)
    assert result.exit_code == 1
    assert result.output.startswith("supported: no\n")
    assert "[OG-MF-103" in result.output
    assert "help:" in result.output


def test_schema_plan_prints_json(shell: Shell) -> None:
    new = shell.write("new.pg", SCHEMA.replace("    age: I32?\n", ""))
    soft = json.loads(shell.run("schema", "plan", "--json", "--from", shell.schema, "--to", new).output)
    assert soft["supported"] is True
    assert soft["step_count"] == 1
    assert (soft["steps"][0]["kind"], soft["steps"][0]["mode"]) == ("drop_property", "soft")
    assert soft["tier"] != "safe"
    hard = shell.run("schema", "plan", "--json", "--allow-data-loss", "--from", shell.schema, "--to", new)
    assert json.loads(hard.output)["steps"][0]["mode"] == "hard"


def test_a_schema_that_does_not_compile_is_reported(shell: Shell) -> None:
    broken = shell.write("broken.pg", "node A {")
    result = shell.run("schema", "plan", "--from", shell.schema, "--to", broken)
    assert result.exit_code == 1
    assert "broken.pg" in result.stderr


def test_a_schema_without_types_is_refused_as_apply_does(shell: Shell) -> None:
    place = shell.init()
    for text in ("", "\n", "// no types yet\n", "interface Named { name: String }\n"):
        new = shell.write("new.pg", text)
        for command in (
            ("schema", "plan", place, "--schema", new),
            ("schema", "plan", "--from", shell.schema, "--to", new),
            ("schema", "apply", place, "--schema", new, "--yes"),
        ):
            assert "the new schema has no types" in shell.fails(*command)
    assert (
        shell.run("schema", "plan", "--from", shell.write("old.pg", ""), "--to", shell.write("n.pg", "")).exit_code == 0
    )
