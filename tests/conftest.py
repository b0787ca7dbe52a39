"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings
from tests.s3_server import S3Root, S3Server, running

# A busy machine is no reason to fail a property.
settings.register_profile("omnigraph", deadline=None)
settings.load_profile("omnigraph")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server, started for the tests that ask for it. Mark those with `s3`."""
    with running() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> S3Root:
    """An empty place in S3 for one test."""
    return s3_server.root(uuid4().hex)
