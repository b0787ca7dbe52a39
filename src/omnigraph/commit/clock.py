"""Commit times. They are shown to users, and used to read a branch as it was at a given time."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import now_micros
from omnigraph.storage.objects.store_clock import tolerance


def commit_time(view: Manifest) -> int:
    """Time of the next commit: now, and later than every commit before it.

    A commit far in the future was made by a host with a wrong clock, and is ignored here. Otherwise all later commits
    would be dated in the future, and could not be found by time.
    """
    now = now_micros()
    latest = now + int(tolerance() * 1_000_000)
    sane = (commit.created_at for commit in (view.head, *reversed(view.recent)) if commit.created_at <= latest)
    return max(now, next(sane, 0) + 1)
