"""A server limits the arenas of the C allocator, in its own process and in its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import until
from tests.server.conftest import Serve
from tests.server.test_process import FAST, Process, workers_of

import omnigraph
from omnigraph.server import app

COUNT = """
import ctypes, threading
from omnigraph.server.arenas import limit_arenas
limit_arenas()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.fopen.restype, c.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
c.malloc_info.argtypes, c.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
together = threading.Barrier(40)
def allocate():
    together.wait()
    c.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = c.fopen(b"/dev/stdout", b"w")
c.malloc_info(0, file)
c.fclose(file)
"""
RETURN = """
from omnigraph.server.arenas import return_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1])
blocks = [bytes(64 << 10) for _ in range(2_000)]
blocks = blocks[::20]
before = resident()
return_freed_memory()
print(before - resident())
"""
_LIBRARY = os.confstr("CS_GNU_LIBC_VERSION") or ""
needs_glibc = pytest.mark.skipif("glibc" not in _LIBRARY, reason="another C library")


def arenas(**environ: str) -> int:
    """The arenas of a process in which 40 threads allocate memory at the same time."""
    variables = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | environ
    done = subprocess.run([sys.executable, "-c", COUNT], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.count("<heap nr=")


@needs_glibc
def test_many_threads_share_one_arena_per_core() -> None:
    cores = os.cpu_count() or 2
    assert 1 < arenas() <= max(2, cores)


@needs_glibc
def test_the_variable_of_the_operator_is_kept() -> None:
    assert arenas(MALLOC_ARENA_MAX="1") == 1


@pytest.mark.slow
def test_workers_have_the_limit(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "graph", "node Person { name: String @key }").close()
    server = Process("--unauthenticated", "--workers", "2", str(tmp_path / "graph"), environ=FAST)
    try:
        for worker in workers_of(server.id):
            variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
            assert f"MALLOC_ARENA_MAX={max(2, os.cpu_count() or 2)}".encode() in variables
        assert workers_of(server.id)
    finally:
        server.stop()


@needs_glibc
def test_freed_memory_between_used_blocks_is_returned() -> None:
    done = subprocess.run([sys.executable, "-c", RETURN], capture_output=True, text=True, check=True)
    freed = 2_000 * 95 // 100 * (64 << 10) // os.sysconf("SC_PAGE_SIZE")
    assert int(done.stdout) > freed / 2


@pytest.mark.slow
def test_a_server_returns_freed_memory_from_time_to_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[int] = []
    monkeypatch.setattr(app, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(app, "return_freed_memory", lambda: returned.append(1))
    serve()
    until(lambda: len(returned) > 2)
