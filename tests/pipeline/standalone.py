"""A local Spark cluster: a master and workers, each in its own process, that stop at the end of the block."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import until

from omnigraph.pipeline.spark.session import Session, SparkSettings

ROOT = Path(__file__).parents[2]
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two hosts, because Spark does not repeat a slow task on the host of the first attempt."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


class Standalone:
    """The processes of a cluster.

    Args:
        directory: for logs and the files of executors.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = directory / "master.log"
        self._started = 0
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._start("master", "Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        until(lambda: _ADDRESS.search(self._log.read_text()), pause=0.1)
        found = _ADDRESS.search(self._log.read_text())
        assert found is not None
        self.master = found[1]
        for host in HOSTS:
            self.start_worker(host)
        until(lambda: self._registered() == len(HOSTS), pause=0.1)

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            # Its own process group, which includes the executors of a worker.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)
        return process

    def start_worker(self, host: str) -> None:
        """Start a worker with one core."""
        self._started += 1
        work = self._directory / f"work-{self._started}"
        name = f"worker-{self._started}"
        sizes = ("--cores", "1", "--memory", "1200m", "--webui-port", "0", "--work-dir", str(work))
        self.workers[host] = self._start(name, "Worker", "--host", host, *sizes, self.master)

    def restore(self) -> None:
        """Restart the killed workers, and wait for them."""
        dead = [host for host, process in self.workers.items() if process.poll() is not None]
        known = self._registered()
        for host in dead:
            self.start_worker(host)
        until(lambda: self._registered() == known + len(dead), pause=0.1)

    def _registered(self) -> int:
        return self._log.read_text().count("Registering worker ")

    def stop(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    made = Standalone(directory)
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def session_on(cluster: Standalone) -> Iterator[Session]:
    """A session on the cluster, with speculative execution of slow tasks."""
    options = {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.executor.memory": "700m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "spark.python.daemon.module": "tests.pipeline.warm_daemon",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "2",
        "spark.speculation.quantile": "0.5",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.task.maxFailures": "8",
    }
    made = Session(SparkSettings(master=cluster.master, memory="1g", options=options, archive=False))
    try:
        yield made
    finally:
        made.stop()
