"""The rules about rows and masks on the page about policies fit a schema."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tests.docs.test_guides_run import DOCS

from omnigraph.cli.main import cli
from page_examples import blocks

SCHEMA = """
node Ship { name: String @key  owner: String?  fleet: String? }
node Sailor { name: String @key  salary: I32? }
"""


def test_the_row_rules_of_the_page_fit_a_schema(tmp_path: Path) -> None:
    written = [
        block
        for block in blocks((DOCS / "guide" / "policies.md").read_text(encoding="utf-8"))
        if block.language == "yaml" and block.file != "tests.yaml"
    ]
    bundle, rules = [block.text for block in written]
    policy, schema = tmp_path / "policy.yaml", tmp_path / "schema.pg"
    schema.write_text(SCHEMA, encoding="utf-8")
    for text, is_valid in ((rules, True), (rules.replace("$.owner", "$.onwer"), False)):
        policy.write_text(bundle + text, encoding="utf-8")
        found = CliRunner().invoke(cli, ["policy", "validate", "--policy", str(policy), "--schema", str(schema)])
        assert (found.exit_code == 0) == is_valid, found.output
