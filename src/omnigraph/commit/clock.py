"""The times of commits. They are for people, and for looking at a branch as it was at a time."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import now_micros
from omnigraph.storage.objects.store_clock import tolerance


def commit_time(view: Manifest) -> int:
    """When a commit that follows a view is made: now, and later than every commit before it.

    A commit that lies far in the future was made by a host with a wrong clock. The next one does not follow it:
    otherwise all later commits would be dated in the future, too, and none of them could be found by its time.
    """
    now = now_micros()
    latest = now + int(tolerance() * 1_000_000)
    sane = (commit.created_at for commit in (view.head, *reversed(view.recent)) if commit.created_at <= latest)
    return max(now, next(sane, 0) + 1)
