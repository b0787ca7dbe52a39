"""Prometheus metrics of the server. They name routes and statuses, but no graphs and no actors."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from omnigraph.settings import PROMETHEUS_MULTIPROC_DIR

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one application. With several workers, each answers for all of them."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they are for OpenMetrics, and double the size of the text
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "omnigraph_http_requests", "Answered requests.", ["route", "method", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "omnigraph_http_request_seconds",
            "Time from the request to the end of its answer.",
            ["route", "method"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "omnigraph_http_requests_in_flight",
            "Requests that are being answered.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.sent = Counter("omnigraph_http_sent_bytes", "Bytes of the bodies of answers.", registry=self._registry)
        self.disconnects = Counter(
            "omnigraph_http_disconnects", "Clients that left before their answer was complete.", registry=self._registry
        )
        self.refused = Counter("omnigraph_http_refused", "Requests that admission refused.", registry=self._registry)
        self.denied = Counter(
            "omnigraph_policy_denied", "Requests that the policy denied.", ["action"], registry=self._registry
        )

    def text(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        if PROMETHEUS_MULTIPROC_DIR.get():
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self._registry)


def forget_worker(process: int) -> None:
    """Remove the gauges of a worker that has ended."""
    if PROMETHEUS_MULTIPROC_DIR.get():
        mark_process_dead(process)  # type: ignore[no-untyped-call]
