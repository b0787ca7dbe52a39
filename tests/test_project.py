"""The repository itself: documented targets, links and tests exist, and no file depends on one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import docs_site

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("requirements.lock", "requirements-s3.lock", "requirements-bench.lock")
}
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def project_files() -> list[Path]:
    """Every file in the repository, tracked or not ignored."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(path for name in names if name and (path := ROOT / name).is_file())


FILES = project_files()
PAGES = [path for path in FILES if path.suffix == ".md"]


# ---- the documentation


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        documented = re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(documented) <= targets, page


def test_readme_shows_the_demo() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\npip install .\npython scripts/demo.py\n" in text
    assert "`make demo`" in text


def test_relative_links_resolve() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert broken == [], page


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]

    docs = ROOT / "docs"
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.SafeLoader)
    named = pages(docs_site.expanded(config["nav"], docs))
    assert sorted(named) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def test_the_glossary_is_sorted() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower)


def test_every_decision_is_in_the_index() -> None:
    decisions = ROOT / "docs" / "decisions"
    index = (decisions / "index.md").read_text(encoding="utf-8")
    assert [path.name for path in decisions.glob("[0-9]*.md") if f"({path.name})" not in index] == []


def test_every_decision_is_linked_from_the_code_that_it_explains() -> None:
    """A comment `# See docs/decisions/NNNN-title.md` below the docstring of a module or in a script."""
    code = [path for path in FILES if path.suffix in (".py", ".sh") and path != Path(__file__).resolve()]
    links = {
        (path.relative_to(ROOT).as_posix(), link)
        for path in code
        for link in re.findall(r"^# See docs/decisions/(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    index = (ROOT / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[\d+\]\(([^)]+)\) \| .* \| (.+) \|$", index, re.MULTILINE)
    current = {page for page, state in rows if not state.startswith(("superseded", "replaced"))}
    assert {(path, link) for path, link in links if link not in current} == set()
    assert current - {link for _, link in links} == set()


INVARIANTS = sorted(path for path in (ROOT / "docs" / "invariants").glob("*.md") if path.name != "index.md")


@pytest.mark.parametrize("page", INVARIANTS, ids=lambda page: page.stem)
def test_every_invariant_names_a_test_that_exists(page: Path) -> None:
    promises = re.split(r"^- ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert promises
    for promise in promises:
        holders = re.findall(r"^    - `(tests/[\w/]+\.py)::(\w+)`$", promise, re.MULTILINE)
        assert holders, f"no test checks: {promise}"
        for file, name in holders:
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^ *def {name}\(", source, re.MULTILINE), f"{file} has no {name}"


def test_every_page_of_invariants_is_linked() -> None:
    text = (ROOT / "INVARIANTS.md").read_text(encoding="utf-8")
    assert [page.name for page in INVARIANTS if f"(docs/invariants/{page.name})" not in text] == []


# ---- no file depends on one machine

MACHINE = re.compile(
    r"(?<![\w.~/-])/(?:home|Users|root|work|opt|mnt|private)/\w"  # folders of a user
    r"|\b[A-Z]:\\Users\\"
    r"|(?://|@)[\w.-]+\.(?:internal|intranet|local|corp|lan)\b"  # a private network
    r"|(?<![\d.])(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+(?![\d.])"
)


def test_no_file_names_a_machine_or_a_user_folder() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in FILES
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if MACHINE.search(line)
    ]
    assert found == []


# ---- locked dependencies


def locked_versions(lock: str) -> dict[str, set[str]]:
    locked: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", LOCKS[lock], re.MULTILINE):
        locked.setdefault(canonicalize_name(name), set()).add(version)
    return locked


def wanted() -> list[tuple[str, Requirement]]:
    """Every requirement, with the lock that should cover it."""
    project = PYPROJECT["project"]
    groups = dict(PYPROJECT["dependency-groups"])
    apart = {"requirements-s3.lock": groups.pop("s3-server"), "requirements-bench.lock": groups.pop("bench-peers")}
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
        *(line for group in groups.values() for line in group),
        *PYPROJECT["build-system"]["requires"],
    ]
    requirements = [requirement for requirement in map(Requirement, lines) if requirement.name != project["name"]]
    return [("requirements.lock", requirement) for requirement in requirements] + [
        (lock, Requirement(line)) for lock, lines in apart.items() for line in lines
    ]


@pytest.mark.parametrize(("lock", "requirement"), wanted(), ids=str)
def test_lock_covers_every_dependency(lock: str, requirement: Requirement) -> None:
    versions = locked_versions(lock).get(canonicalize_name(requirement.name), set())
    assert versions, "run `make lock`"
    assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), versions


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash(lock: str) -> None:
    entries = re.split(r"^(?=\w)", LOCKS[lock], flags=re.MULTILINE)[1:]
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_path_and_no_index(lock: str) -> None:
    lines = LOCKS[lock].splitlines()
    assert [line for line in lines if "/" in line or "--index" in line or "--find-links" in line] == []


def test_extra_all_holds_every_extra() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert Requirement(everything).extras == extras.keys() - {"all"}


# ---- continuous integration


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in lines
    assert "make test" in lines


def test_layer_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
