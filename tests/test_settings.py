"""Every environment variable is declared in `omnigraph.settings`, and read nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import settings
from omnigraph.errors import InputError
from omnigraph.settings import LOAD_MEMORY, Group, Setting

ROOT = Path(__file__).resolve().parent.parent
MODULES = [path for path in sorted((ROOT / "src").rglob("*.py")) if path.name != "settings.py" or "embed" in path.parts]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAME = re.compile(r"OMNIGRAPH_[A-Z0-9_]*[A-Z0-9]")
READ_BY_PYTHON = {"HTTPS_PROXY", "TMPDIR"}
PRINTED = {"OMNIGRAPH_LISTEN_ADDR"}
"""Names that look like variables, and that the server prints."""


def names() -> set[str]:
    return {setting.name for setting in settings.all_settings()}


def test_no_variable_is_declared_twice() -> None:
    assert len(names()) == len(settings.all_settings())


def accesses(module: Path) -> Iterator[ast.expr]:
    """The keys with which a module reads or writes `environ`."""
    text = module.read_text(encoding="utf-8")
    if not re.search("environ|getenv", text):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Subscript(value=ast.Name(id="environ") | ast.Attribute(attr="environ"), slice=key):
                yield key
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="environ") | ast.Attribute(attr="environ"), attr=method),
                args=[key, *_],
            ) if method in ("get", "pop", "setdefault"):
                yield key
            case ast.Call(func=ast.Attribute(attr="getenv") | ast.Name(id="getenv"), args=[key, *_]):
                yield key
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[other]):
                if ast.unparse(other).endswith("environ"):
                    yield key


def test_variables_are_read_through_their_settings() -> None:
    found = [
        f"{module.relative_to(ROOT)}: {ast.unparse(key)}"
        for module in MODULES
        for key in accesses(module)
        if not re.fullmatch(r"[A-Z0-9_]+\.name", ast.unparse(key))
    ]
    assert found == []


def test_no_module_contains_the_name_of_a_variable() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    ]
    assert found == []


def test_every_setting_is_used() -> None:
    imported = {
        alias.name
        for module in MODULES
        if "omnigraph.settings" in (text := module.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "omnigraph.settings"
        for alias in node.names
    }
    declared = {name for name, value in vars(settings).items() if isinstance(value, Setting)}
    assert declared - imported == READ_BY_PYTHON


def test_variables_in_messages_exist() -> None:
    found = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in MODULES
        for name in NAME.findall(module.read_text(encoding="utf-8"))
        if name not in names() | PRINTED
    }
    assert found == set()


def test_variables_on_pages_exist() -> None:
    """Pages may also name the variables of the test suite."""
    suite = {name for path in (ROOT / "tests").rglob("*.py") for name in NAME.findall(path.read_text(encoding="utf-8"))}
    suite |= {name.partition("_<")[0] for name in names()}
    for page in PAGES:
        assert set(NAME.findall(page.read_text(encoding="utf-8"))) <= names() | suite, page


@pytest.mark.parametrize("setting", [each for each in settings.all_settings() if each.value == "amount"], ids=str)
def test_default_amounts_can_be_parsed(setting: Setting) -> None:
    assert setting.amount({}) > 0


def test_a_value_overrides_the_default() -> None:
    assert LOAD_MEMORY.get({}) is None
    assert LOAD_MEMORY.text({}) == "1 GiB"
    assert LOAD_MEMORY.text({"OMNIGRAPH_LOAD_MEMORY": "2 GiB"}) == "2 GiB"
    assert LOAD_MEMORY.amount({"OMNIGRAPH_LOAD_MEMORY": "2 GiB"}) == 2 << 30


def test_a_wrong_amount_names_its_variable() -> None:
    with pytest.raises(InputError, match=r"^OMNIGRAPH_LOAD_MEMORY: 'much' is not an amount"):
        LOAD_MEMORY.amount({"OMNIGRAPH_LOAD_MEMORY": "much"})


def test_settings_are_read_from_the_process_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOAD_MEMORY", "1 MiB")
    assert LOAD_MEMORY.amount() == 1 << 20


def test_every_group_has_settings() -> None:
    assert {setting.group for setting in settings.all_settings()} == set(Group)
