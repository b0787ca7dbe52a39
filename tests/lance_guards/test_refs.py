"""Branches and tags of Lance, and their pitfalls."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import orjson
import pytest
from tests.lance_guards.small import append, create, ids, newest

from omnigraph.storage.lance_failures import is_missing
from omnigraph.storage.table_ref import branch_ref_path


def test_a_branch_begins_at_an_exact_version(tmp_path: Path) -> None:
    """A number is a version of the branch of the handle."""
    dataset = append(append(create(tmp_path), "m1"), "m2")
    dev = dataset.create_branch("dev", 2)
    assert (dev.version, ids(dev)) == (2, ["m1"])
    dev = append(append(dev, "d1"), "d2")
    kid = lance.dataset(str(tmp_path / "tree" / "dev"), version=3).create_branch("kid", 3)
    assert (kid.version, ids(kid)) == (3, ["d1", "m1"])
    listed = newest(tmp_path).branches.list()
    assert {name: info["parent_branch"] for name, info in listed.items()} == {"dev": None, "kid": "dev"}


@pytest.mark.parametrize("name", ["dev", "a/b", "é", "x-y.z_1"])
def test_a_branch_ref_is_a_file_with_a_unique_identifier(tmp_path: Path, name: str) -> None:
    """It can be read directly, and a branch that is created again has another identifier."""
    dataset = create(tmp_path)
    seen = set()
    for _ in range(2):
        dataset.create_branch(name, 1)
        ref = orjson.loads((tmp_path / branch_ref_path(name)).read_bytes())
        identifier = ref["identifier"]["version_mapping"][-1][1]
        assert dataset.branches.list()[name]["branch_identifier"][-1][1] == identifier
        seen.add(identifier)
        dataset.branches.delete(name)
        assert not (tmp_path / branch_ref_path(name)).exists()
    assert len(seen) == 2


def test_files_without_a_ref_block_a_new_branch(tmp_path: Path) -> None:
    """They open by path, and block a new branch: the store checks the ref, and removes them."""
    dataset = create(tmp_path)
    dataset.create_branch("dev", 1)
    (tmp_path / branch_ref_path("dev")).unlink()
    assert newest(tmp_path, "dev").version == 1
    with pytest.raises(OSError, match="Clone operation"):
        dataset.create_branch("dev", 1)
    with pytest.raises(ValueError, match="does not exist"):
        dataset.branches.delete("dev")
    shutil.rmtree(tmp_path / "tree" / "dev")
    dataset.create_branch("dev", 1)


def test_a_ref_without_files_can_be_deleted(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    dataset.create_branch("dev", 1)
    shutil.rmtree(tmp_path / "tree" / "dev")
    dataset.branches.delete("dev")
    assert dataset.branches.list() == {}


def test_a_branch_with_children_is_not_deleted(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    dataset.create_branch("dev", 1).create_branch("kid", 1)
    with pytest.raises(OSError, match="referenced"):
        dataset.branches.delete("dev")


def test_deleting_a_branch_keeps_its_neighbours(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    for name in ("x/1", "x/2"):
        append(dataset.create_branch(name, 1), name)
    dataset.branches.delete("x/1")
    assert ids(newest(tmp_path, "x/2")) == ["x/2"]


def test_a_listing_fails_when_a_ref_cannot_be_read(tmp_path: Path) -> None:
    """The whole listing fails, so it is retried if a ref was deleted during it."""
    dataset = create(tmp_path)
    dataset.create_branch("dev", 1)
    (tmp_path / branch_ref_path("dev")).write_bytes(b"{")
    with pytest.raises((OSError, ValueError, RuntimeError)):
        dataset.branches.list()


def test_branches_hold_absolute_paths(tmp_path: Path) -> None:
    dataset = append(create(tmp_path / "here"), "a")
    dataset.create_branch("dev", dataset.version)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert ids(newest(tmp_path / "there")) == ["a"]
    with pytest.raises((OSError, ValueError)):
        ids(newest(tmp_path / "there", "dev"))


def test_tags_name_a_branch_and_a_version(tmp_path: Path) -> None:
    dataset = append(create(tmp_path), "a")
    dev = append(dataset.create_branch("dev", dataset.version), "b")
    dataset.tags.create("on-main", dataset.version)
    dataset.tags.create("on-dev", ("dev", dev.version))
    listed = newest(tmp_path).tags.list()
    assert (listed["on-main"]["branch"], listed["on-main"]["version"]) == (None, dataset.version)
    assert (listed["on-dev"]["branch"], listed["on-dev"]["version"]) == ("dev", dev.version)
    with pytest.raises(ValueError, match="already exists"):
        dataset.tags.create("on-main", 1)
    with pytest.raises(OSError, match="invalid"):
        dataset.tags.create("with/slash", 1)


@pytest.mark.parametrize("name", [".", "./dev", "a..b", "x.lock"])
def test_invalid_branch_names_are_refused(tmp_path: Path, name: str) -> None:
    dataset = create(tmp_path)
    with pytest.raises(OSError, match=r"."):
        dataset.create_branch(name, 1)


# Errors of opening a table


def test_a_missing_table_is_distinguished_from_an_unreadable_one(tmp_path: Path) -> None:
    """Both are a ValueError; only the messages differ."""
    dataset = create(tmp_path / "t")
    for place, version in ((tmp_path / "nothing", None), (tmp_path / "t", 99), (tmp_path / "t" / "tree" / "x", None)):
        with pytest.raises(ValueError, match="was not found") as missing:
            lance.dataset(str(place), version=version)
        assert is_missing(missing.value)
    for path in (tmp_path / "t" / "_versions").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r".") as unreadable:
        lance.dataset(str(tmp_path / "t"))
    assert not is_missing(unreadable.value)
    assert dataset.version == 1


@pytest.mark.s3
def test_an_unreachable_store_is_not_a_missing_table() -> None:
    options = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "aws_region": "us-east-1"}
    options |= {"aws_access_key_id": "x", "aws_secret_access_key": "y", "client_max_retries": "0"}
    with pytest.raises(ValueError, match=r".") as caught:
        lance.dataset("s3://graphs/nothing", storage_options=options)
    assert not is_missing(caught.value)


def test_a_branch_shares_the_file_names_of_its_parent(tmp_path: Path) -> None:
    """The search for merge bases reads a shared fragment once, and identifies it by its file."""
    dataset = append(append(create(tmp_path), "m1"), "m2")
    dev = append(dataset.create_branch("dev", dataset.version), "d1")
    of = [[fragment.metadata.files[0].path for fragment in one.get_fragments()] for one in (dataset, dev)]
    assert of[1][:2] == of[0]
    assert len(set(of[1])) == 3


def test_selected_fragments_are_read_in_the_given_order(tmp_path: Path) -> None:
    dataset = append(append(append(create(tmp_path), "m1"), "m2"), "m3")
    chosen = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id != 1]
    assert dataset.scanner(columns=["id"], fragments=chosen).to_table()["id"].to_pylist() == ["m1", "m3"]
