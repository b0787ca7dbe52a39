"""Child processes that use a graph. They are forked from a process that has imported everything, so they start fast.

Run as a program, this module is that parent process: it reads one job per line and forks a process for each. It never
opens a store, so every forked process starts with a clean one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from typing import Any

import pyarrow as pa
from tests.commit.graphs import SCHEMA, Operation, evolve_to, put, table_write
from tests.commit.together import together
from tests.patience import PATIENCE
from tests.write.mixed import work

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    ConflictError,
    CorruptionError,
    DriftError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    RetryableError,
    StorageError,
    TransactionConflictError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, init, open, repair
from omnigraph.settings import FAILPOINT

ROOT = Path(__file__).resolve().parents[2]
Job = dict[str, Any]


# The jobs of a child process


def _graph(job: Job) -> Graph:
    """Open the graph with timeouts that a slow machine does not reach, unless the job sets other ones."""
    graph = open(job["uri"], actor=job.get("actor"), storage_options=job.get("options"))
    graph.session.store.timeouts.ttl = job.get("ttl", PATIENCE)
    graph.session.store.timeouts.wait = job.get("wait", PATIENCE)
    return graph


def write(job: Job) -> object:
    """One commit."""
    graph = _graph(job)
    request = WriteRequest(
        branch=job.get("branch", MAIN),
        kind=WriterKind(job.get("kind", "Load")),
        actor=job.get("actor"),
        idempotency_key=job.get("idempotency_key"),
        replayable=job.get("replayable", True),
    )
    writes = [table_write(key, Operation(operation), ids) for key, operation, ids in job["writes"]]
    commit = graph.write_tables(request, lambda view: writes)
    return commit and commit.id


def load(job: Job) -> object:
    """One load of NDJSON text, or of columns by type."""
    source = job["source"]
    if isinstance(source, str):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "input.ndjson")
            file.write_text(source)
            return _load(job, file)
    return _load(job, {name: pa.table(columns) for name, columns in source.items()})


def _load(job: Job, source: Path | dict[str, pa.Table]) -> object:
    said = {name: job.get(name) for name in ("branch", "base", "idempotency_key")}
    commit = _graph(job).load(source, mode=job["mode"], **said).commit  # type: ignore[arg-type]  # tables are streams
    return commit and commit.id


def mutate(job: Job) -> object:
    """One mutation."""
    branch, key = job.get("branch"), job.get("idempotency_key")
    commit = _graph(job).mutate(job["text"], job["params"], branch=branch, idempotency_key=key).commit
    return commit and commit.id


PAIR = "query pair($k: String) { insert A { k: $k } insert B { k: $k } }"


LINK = 'query link($k: String) { insert AB { from: "s1", to: $k } }'
"""A mutation that looks up only the ends of its edge, so that only its key tells whether it was made before."""


def group(job: Job) -> object:
    """One group of mutations, each of which adds an id to two tables. Returns the ids of the commits."""
    graph, branch, text = _graph(job), job.get("branch", MAIN), job.get("text", PAIR)
    writes = [partial(_mutate, graph, branch, text, name, f"key {name}") for name in job["names"]]
    made = together(graph, writes, branch)
    failed = next((one for one in made if isinstance(one, Exception)), None)
    if failed is not None:
        raise failed
    return made


def _mutate(graph: Graph, branch: str, text: str, name: str, key: str | None = None) -> str | None:
    commit = graph.mutate(text, {"k": name}, branch=branch, idempotency_key=key).commit
    return None if commit is None else commit.id


def group_many(job: Job) -> object:
    """Threads of one process that add ids to two tables. Each acknowledged id is logged."""
    graph, branch = _graph(job), job.get("branch", MAIN)

    def work(thread: int) -> None:
        for number in range(job["commits"]):
            name = f"{job['name']}-{thread}-{number}"
            _mutate(graph, branch, PAIR, name)
            with Path(job["log"]).open("a") as log:
                log.write(f"ok {name}\n")

    with ThreadPoolExecutor(job["threads"]) as pool:
        list(pool.map(work, range(job["threads"])))
    return None


KEYED = 'query keyed($k: String) { insert A { k: $k }  insert AB { from: $k, to: "s1" } }'
"""A mutation that leaves two edges if it is made twice, because each edge has a new id."""


def keyed_many(job: Job) -> object:
    """Threads that send writes with idempotency keys until a stop file exists. Other processes send the same writes.

    Each answer is logged: the name of the write, its commit, and the numbers of the receipt.
    """
    graph = _graph(job)

    def send(number: int) -> str:
        name, key = f"k{number}", f"key {number}"
        if number % 5 == 4:
            with graph.branch().transaction(idempotency_key=key) as tx:
                tx.mutate(KEYED, {"k": name})
            return f"{name} {tx.commit and tx.commit.id} transaction"
        receipt = graph.mutate(KEYED, {"k": name}, idempotency_key=key)
        return f"{name} {receipt.commit and receipt.commit.id} {receipt.affected_nodes}/{receipt.affected_edges}"

    def work(thread: int) -> None:
        drawn = random.Random(f"{job['seed']} {thread}")
        while not Path(job["stop"]).exists():
            try:
                answer = f"ok {send(drawn.randrange(job['writes']))}"
            except (ConflictError, RetryableError, OutcomeUnknownError) as error:
                answer = f"refused {type(error).__name__}"
            with Path(job["log"]).open("a") as log:
                log.write(f"{answer}\n")

    with ThreadPoolExecutor(job["threads"]) as pool:
        list(pool.map(work, range(job["threads"])))
    return len(os.listdir("/proc/self/fd"))


def merge(job: Job) -> object:
    """One merge of branches."""
    key = job.get("idempotency_key")
    commit = _graph(job).merge(job["source"], job.get("branch", MAIN), idempotency_key=key).commit
    return commit and commit.id


def update_branch(job: Job) -> object:
    """One branch update."""
    commit = _graph(job).branches.update(job["branch"], idempotency_key=job.get("idempotency_key")).commit
    return commit and commit.id


def pick(job: Job) -> object:
    """One revert or cherry-pick."""
    graph, key = _graph(job), job.get("idempotency_key")
    if job["verb"] == "revert":
        receipt = graph.revert(job["commit"], branch=job["branch"], idempotency_key=key)
    else:
        receipt = graph.cherry_pick(job["commit"], job["branch"], idempotency_key=key)
    return receipt.commit and receipt.commit.id


def optimize(job: Job) -> object:
    """Compact files and build indexes."""
    commit = _graph(job).optimize().commit
    return commit and commit.id


def transact(job: Job) -> object:
    """One transaction: it adds ids to two tables and deletes one id. It can be killed in its block or at its commit."""
    graph = _graph(job)
    with graph.branch(job.get("branch", MAIN)).transaction(idempotency_key=job.get("idempotency_key")) as tx:
        tx.load({"A": pa.table({"k": job["ids"]}), "B": pa.table({"k": job["ids"]})}, mode="append")
        tx.mutate("query gone($k: String) { delete B where k = $k }", {"k": job["gone"]})
        tx.load({"B": pa.table({"k": job["ids"], "n": [7] * len(job["ids"])})}, mode="merge")
        if job.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        os.environ[FAILPOINT.name] = job.get("at_end", "")
    return tx.commit and tx.commit.id


def collect(job: Job) -> object:
    """The same changes as `transact`, by queries alone, so that the transaction needs no branch."""
    graph = _graph(job)
    with graph.branch(job.get("branch", MAIN)).transaction() as tx:
        for one in job["ids"]:
            for type_name in ("A", "B"):
                tx.mutate(f"query put($k: String) {{ insert {type_name} {{ k: $k }} }}", {"k": one})
        tx.mutate("query gone($k: String) { delete B where k = $k }", {"k": job["gone"]})
        if job.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        os.environ[FAILPOINT.name] = job.get("at_end", "")
    return tx.commit and tx.commit.id


def transact_many(job: Job) -> object:
    """Many transactions of two steps each. One that conflicts with another transaction is retried."""
    graph = _graph(job)
    again = 0
    for number in range(job["commits"]):
        name = f"{job['name']}-{number}"
        while True:
            try:
                with graph.branch().transaction() as tx:
                    for type_name in ("A", "B"):
                        tx.load({type_name: pa.table({"k": [name]})}, mode="append")
                break
            except TransactionConflictError:
                again += 1
    return again


def reopen(job: Job) -> object:
    """Open for writing, which runs recovery."""
    _graph(job).close()
    return None


def repair_all(job: Job) -> object:
    """Repair with every consent."""
    return len(repair(job["uri"], confirm=True, force=True).rows)


def create(job: Job) -> object:
    init(job["uri"], SCHEMA, force=job.get("force", False)).close()
    return None


def change_schema(job: Job) -> object:
    """One commit that changes the schema and adds rows to a table."""
    commit = evolve_to(_graph(job), job["source"], job["ids"])
    return commit and commit.id


def apply_schema(job: Job) -> object:
    """Apply a schema. The result says whether it was applied."""
    done = _graph(job).schema.apply(job["source"], allow=job.get("allow", "drops"))
    return done.applied


def create_branch(job: Job) -> object:
    return _graph(job).branches.create(job["name"], commit=job.get("commit")).head


def delete_branch(job: Job) -> object:
    _graph(job).branches.delete(job["name"], expect_head=job.get("expect_head"))
    return None


def reset_branch(job: Job) -> object:
    return _graph(job).branches.reset(job["name"], job["commit"], expect_head=job.get("expect_head")).tag


def create_tag(job: Job) -> object:
    return _graph(job).tags.create(job["name"], commit=job.get("commit")).commit_id


def delete_tag(job: Job) -> object:
    _graph(job).tags.delete(job["name"])
    return None


def cleanup(job: Job) -> object:
    orphans = timedelta(seconds=job["orphans"]) if "orphans" in job else timedelta(days=7)
    return _graph(job).cleanup(keep=job["keep"], orphans_older_than=orphans).versions_removed


# Jobs that run beside a loop of cleanups. Each returns its results, its losses, and errors outside of the error family.


def clean_many(job: Job) -> object:
    """Run cleanups, with no grace period for orphaned files, until a stop file exists."""
    graph = _graph(job)
    calls = 0
    failures: list[str] = []
    while not Path(job["stop"]).exists():
        calls += 1
        try:
            failures += graph.cleanup(keep=1, orphans_older_than=timedelta(0)).errors
        except Exception:
            failures.append(traceback.format_exc())
    return {"calls": calls, "failures": failures}


def _rounds(job: Job, act: Callable[[Graph, int], Sequence[str]]) -> object:
    """Act the given number of times, and retry retryable errors."""
    graph = _graph(job)
    said: dict[str, Any] = {"done": 0, "raw": [], "lost": [], "acknowledged": [], "refused": []}
    until = time.monotonic() + PATIENCE / 4
    while said["done"] < job["rounds"] and time.monotonic() < until:
        try:
            said["acknowledged"] += act(graph, said["done"])
            said["done"] += 1
        except AssertionError:
            said["lost"].append(traceback.format_exc())
            said["done"] += 1
        except OmnigraphError as error:
            said["refused"].append(f"{type(error).__name__}: {error}")
            if isinstance(error, StorageError | CorruptionError | DriftError):
                said["raw"].append(traceback.format_exc())
        except Exception:
            said["raw"].append(traceback.format_exc())
            said["done"] += 1
    return said


def _names(graph: Graph, branch: str | None = None, at: str | None = None) -> list[str]:
    view = graph.session.snapshot_at(branch, at)
    left, right = (sorted(view.scan(key, columns=["id"])["id"].to_pylist()) for key in ("node:A", "node:B"))
    assert left == right
    return left


def _again(read: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Read the newest state. If cleanup removes its version meanwhile, read again."""
    while True:
        with suppress(VersionReclaimedError):
            return read()


def name_many(job: Job) -> object:
    """Create and delete branches and tags. Every acknowledged one can be read."""

    def act(graph: Graph, number: int) -> Sequence[str]:
        name = f"{job['name']}{number}"
        if name in graph.branches:
            graph.branches.delete(name)
        tag = graph.tags.create(f"t{name}-{time.monotonic_ns()}")
        tagged = _names(graph, at=tag.name)
        graph.branches.create(name, commit=tag.commit_id)
        graph.load({"A": pa.table({"k": [name]}), "B": pa.table({"k": [name]})}, mode="merge", branch=name)
        assert _again(lambda: _names(graph, name)) == sorted({*tagged, name})
        assert _names(graph, at=tag.name) == tagged
        graph.branches.delete(name)
        graph.tags.delete(tag.name)
        return []

    return _rounds(job, act)


def merge_many(job: Job) -> object:
    """Write to a branch and merge it, many times, and sometimes merge `main` into it."""

    def act(graph: Graph, number: int) -> Sequence[str]:
        branch, name = f"{job['name']}-{number // 4}", f"{job['name']} {number}"
        if branch not in graph.branches:
            graph.branches.create(branch)
        graph.load({"A": pa.table({"k": [name]}), "B": pa.table({"k": [name]})}, mode="merge", branch=branch)
        if number % 3 == 0:
            graph.merge("main", into=branch)
        graph.merge(branch)
        assert name in _again(lambda: _names(graph))
        if number % 4 == 3:
            graph.branches.delete(branch)
        return [name]

    return _rounds(job, act)


def export_many(job: Job) -> object:
    """Exports with pauses between them. Each one shows a single commit."""

    def act(graph: Graph, number: int) -> Sequence[str]:
        kinds: dict[str, list[str]] = {"A": [], "B": []}
        for key, batch in graph.export(format="arrow"):
            kinds[key.partition(":")[2]] += batch.column("k").to_pylist()
            time.sleep(0.05)
        assert kinds["A"] == kinds["B"]
        return []

    return _rounds(job, act)


def load_many(job: Job) -> object:
    """Loads, mutations and transactions in turn. Each one is acknowledged."""

    def act(graph: Graph, number: int) -> Sequence[str]:
        name = f"{job['name']} {number}"
        rows = {"A": pa.table({"k": [name]}), "B": pa.table({"k": [name]})}
        if number % 3 == 0:
            graph.load(rows, mode="merge")
        elif number % 3 == 1:
            graph.mutate("query q($k: String) { insert A { k: $k }  insert B { k: $k } }", {"k": name})
        else:
            with graph.branch().transaction() as tx:
                tx.load(rows, mode="merge")
        assert name in _again(lambda: _names(graph))
        return [name]

    return _rounds(job, act)


def commit_many(job: Job) -> object:
    """Commit to two tables at a time, many times, and log the acknowledged and the failed commits."""
    graph = _graph(job)
    with Path(job["log"]).open("a", buffering=1) as log:
        for number in range(job["commits"]):
            name = f"{job['name']}-{number}-{os.getpid()}"
            try:
                put(graph, [name], job["keys"], branch=job.get("branch", MAIN), actor=job["name"])
                log.write(f"ok {name}\n")
            except (ConflictError, RetryableError) as error:
                log.write(f"conflict {type(error).__name__}\n")
    return None


def mixed(job: Job) -> object:
    """Loads and mutations in turn. Each one is logged."""
    work(_graph(job), job["name"], job["rounds"], Path(job["log"]))
    return None


def come_and_go(job: Job) -> object:
    """Create branches, write to them and delete them, for the given time and number of rounds, and log each step."""
    graph = _graph(job)
    done = 0
    until = time.monotonic() + job["seconds"]
    with Path(job["log"]).open("a", buffering=1) as log:
        while time.monotonic() < until or done < job["rounds"]:
            name = random.choice(job["names"])
            with suppress(ConflictError, NotFoundError, RetryableError):
                if name in graph.branches:
                    graph.branches.delete(name)
                else:
                    graph.branches.create(name)
                    put(graph, [f"{name}-{done}"], ["node:A", "node:B"], branch=name)
                done += 1
                log.write(f"ok {name}\n")
    return done


def watch(job: Job) -> object:
    """Read until a stop file exists, and once more. Two tables must have the same ids: otherwise a commit is torn."""
    graph = open(job["uri"], read_only=True, storage_options=job.get("options"))
    looks, versions, stopped = 0, set(), False
    while not stopped:
        stopped = Path(job["stop"]).exists()
        snapshot = graph.snapshot(branch=job.get("branch", MAIN))
        left, right = (sorted(snapshot.scan(key, columns=["id"])["id"].to_pylist()) for key in job["keys"])
        if left != right or len(left) != snapshot.pin(job["keys"][0]).row_count:
            return {"half a commit": snapshot.manifest_version}
        looks += 1
        versions.add(snapshot.manifest_version)
        Path(job["ready"]).touch()
        time.sleep(0.01)
    return {"looks": looks, "versions": len(versions)}


def consume(job: Job) -> object:
    """Follow a change feed until a stop file exists. Each page is stored with its position, in one transaction."""
    graph = open(job["uri"], read_only=True)
    store = sqlite3.connect(job["store"], isolation_level=None)
    store.execute("pragma synchronous = off")
    store.execute("create table if not exists log (place integer primary key, commit_id text, text text)")
    store.execute("create table if not exists copy (key text, id text, image text, primary key (key, id))")
    store.execute("create table if not exists position (name text, token text)")
    pages = 0
    while True:
        found = store.execute("select name, token from position").fetchall()
        stopped = Path(job["stop"]).exists()
        wait = 0 if stopped or not found or found[0][0] != "cursor" else 0.1
        page = graph.changes.poll(
            **dict(found or [("start", "beginning")]), limit=job["limit"], max_bytes=job["max_bytes"], wait=wait
        )
        store.execute("begin immediate")
        for block in page.blocks:
            for change in block.changes:
                store.execute("insert into log (commit_id, text) values (?, ?)", (block.cause.commit.id, change.text))
                key = f"{change.kind}:{change.type_name}", change.id
                if change.after is None:
                    store.execute("delete from copy where key = ? and id = ?", key)
                else:
                    store.execute("insert or replace into copy values (?, ?, ?)", (*key, json.dumps(change.after)))
        named = ("page_token", page.next_page_token) if page.cursor is None else ("cursor", page.cursor)
        store.execute("delete from position")
        store.execute("insert into position values (?, ?)", named)
        if job.get("dies") == "applied" and pages == job["page"]:
            os.kill(os.getpid(), signal.SIGKILL)
        store.execute("commit")
        if job.get("dies") == "stored" and pages == job["page"]:
            os.kill(os.getpid(), signal.SIGKILL)
        pages += 1
        if stopped and page.caught_up:
            return pages


JOBS: dict[str, Callable[[Job], object]] = {
    job.__name__: job
    for job in (
        *(
            write,
            load,
            mutate,
            group,
            group_many,
            keyed_many,
            merge,
            reopen,
            create,
            change_schema,
            create_branch,
            delete_branch,
            cleanup,
        ),
        *(create_tag, delete_tag, reset_branch, pick, apply_schema, update_branch),
        *(clean_many, name_many, merge_many, export_many, load_many, consume),
        *(transact, collect, transact_many, commit_many, mixed, come_and_go, watch, optimize, repair_all),
    )
}


# The parent's side: starting processes and reading how they ended


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended.

    Attributes:
        signal: the signal that killed it, or 0.
        error: the class of the exception that it raised, if any.
        result: the return value of the job.
    """

    signal: int
    error: str | None
    text: str
    result: Any

    def ok(self) -> Any:
        """The result of a job that must not have failed."""
        assert (self.signal, self.error) == (0, None), self.text
        return self.result


class Children:
    """Starts processes."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._started = 0
        self._results: dict[int, Path] = {}

    def start(self, job: str, *, failpoint: str | None = None, **arguments: object) -> int:
        """Start a job and return its process id."""
        self._started += 1
        result = self._directory / f"{self._started}.json"
        pid = int(self._ask({"job": job, "failpoint": failpoint, "result": str(result), **arguments})["pid"])
        self._results[pid] = result
        return pid

    def wait(self, pid: int) -> Ending:
        """Wait until a process has ended."""
        status = self._ask({"wait": pid})["status"]
        killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        said: Mapping[str, Any] = {}
        with suppress(FileNotFoundError):
            said = json.loads(self._results.pop(pid).read_text())
        assert killer or said, f"a child ended with {status} and said nothing"
        return Ending(killer, said.get("error"), said.get("text", ""), said.get("result"))

    def run(self, job: str, *, failpoint: str | None = None, **arguments: object) -> Ending:
        """Start a job and wait for its end."""
        return self.wait(self.start(job, failpoint=failpoint, **arguments))

    def end_all(self) -> None:
        """Kill all started processes that have not been waited for."""
        for pid in list(self._results):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def _ask(self, message: Mapping[str, object]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def running(directory: Path) -> Iterator[Children]:
    """A parent of child processes for the duration of the block."""
    environment = {**os.environ, "OMNIGRAPH_FSYNC": "0", "LANCE_LOG": "error", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.commit.child"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Children(process, directory)
        finally:
            process.kill()


def _import_everything() -> None:
    """Import the modules that verbs import when they are called, so that no forked process has to do it."""
    for name in ("commit", "storage", "lang", "evaluate", "embed", "read", "write", "merge", "migrate", "upkeep"):
        package = import_module(f"omnigraph.{name}")
        for module in walk_packages(package.__path__, f"omnigraph.{name}."):
            if not module.name.startswith("omnigraph.storage.objects.s3"):  # its client is not made for forks
                import_module(module.name)
    for name in ("changes", "engine", "graph"):
        package = import_module(f"omnigraph.{name}")
        for module in iter_modules(package.__path__, f"omnigraph.{name}."):
            import_module(module.name)


def _serve() -> None:
    _import_everything()
    for line in sys.stdin:
        message = json.loads(line)
        answer = {"status": os.waitpid(message["wait"], 0)[1]} if "wait" in message else {"pid": _fork(message)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _fork(job: Job) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(int(PATIENCE))  # ends a process that hangs
    # From here on, no object of the parent may be used or flushed.
    os.close(0)
    os.dup2(2, 1)
    if job["failpoint"]:
        os.environ[FAILPOINT.name] = job["failpoint"]
    said: dict[str, object] = {"error": None}
    try:
        said["result"] = JOBS[job["job"]](job)
    except OmnigraphError as error:
        said |= {"error": type(error).__name__, "text": str(error)}
    except BaseException as error:
        said |= {"error": type(error).__name__, "text": traceback.format_exc()}
    temporary = f"{job['result']}.tmp"
    Path(temporary).write_text(json.dumps(said))
    os.rename(temporary, job["result"])
    os._exit(0)


def read_log(logs: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The log of `commit_many`: the acknowledged names, and the kinds of conflict."""
    lines = [line.split() for log in logs if log.exists() for line in log.read_text().splitlines()]
    return [what for kind, what in lines if kind == "ok"], [what for kind, what in lines if kind == "conflict"]


def end(pid: int, how: int = signal.SIGKILL) -> None:
    """Send a signal to a process that was started here."""
    os.kill(pid, how)


if __name__ == "__main__":
    _serve()
