"""The C allocator: keep freed memory for the next arrays, instead of returning it to the operating system."""

# See docs/decisions/0281-freed-memory-is-kept.md

from __future__ import annotations

from functools import cache

import numpy as np

_LARGEST_THRESHOLD = 32 << 20
"""The allocator of glibc raises its thresholds up to this number of bytes."""

_HEADER_BYTES = 64 << 10
"""More than the allocator adds to a block, so that the block is below the largest threshold."""


@cache
def keep_freed_memory() -> None:
    """Let the allocator keep up to 64 MiB of freed memory per thread.

    Without this, each large array is mapped from the operating system, and every page of it is cleared when it is
    first written. That costs as much as the computation itself.

    glibc raises its threshold for mapped blocks to the size of the largest mapped block that was freed. So a block of
    nearly the largest size is allocated, not touched, and freed. Other allocators are not affected.
    """
    np.empty(_LARGEST_THRESHOLD - _HEADER_BYTES, np.uint8)
