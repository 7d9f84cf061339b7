"""Metrics in Prometheus form, with Kafka's meanings.

Counters and histograms are kept as things happen; what can be read off the open topics (where their logs begin and
end, how many segments they have) is read when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from lakelog.broker import Broker
from lakelog.observer import Observer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
RECORDS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

# A series beside every counter that says when it was first seen: twice the scrape for nothing that is used.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics(Observer):
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for standard in (GCCollector, PlatformCollector, ProcessCollector):
            standard(registry=self.registry)
        counter = self._counter
        self.messages_in = counter("lakelog_topic_messages_in", "Records appended", "topic")
        self.bytes_in = counter("lakelog_topic_bytes_in", "Bytes of keys, values and headers appended", "topic")
        self.messages_out = counter("lakelog_topic_messages_out", "Records fetched", "topic")
        self.bytes_out = counter("lakelog_topic_bytes_out", "Bytes of keys, values and headers fetched", "topic")
        self.commits = counter("lakelog_commits", "Commits of appended records", "topic")
        self.reads = counter("lakelog_reads", "Reads by fetches, out of memory or out of files", "source")
        self.refused = counter("lakelog_http_refused", "Requests refused because of a limit of the gateway", "reason")
        self.requests = counter("lakelog_http_requests", "Requests", "method", "route", "status")
        self.commit_seconds = self._histogram(
            "lakelog_commit_seconds", "From the end of gathering to the commit", SECONDS
        )
        self.commit_records = self._histogram("lakelog_commit_records", "Records in a commit", RECORDS)
        self.commit_requests = self._histogram("lakelog_commit_requests", "Requests in a commit", RECORDS)
        self.request_seconds = self._histogram(
            "lakelog_http_request_seconds", "Time to the end of the reply", SECONDS, "method", "route"
        )
        self.kafka_requests = counter("lakelog_kafka_requests", "Requests of Kafka clients", "api")
        self.kafka_request_seconds = self._histogram(
            "lakelog_kafka_request_seconds", "From a Kafka client's request to its reply", SECONDS, "api"
        )
        self.kafka_connections = Gauge(
            "lakelog_kafka_connections", "Connections of Kafka clients", registry=self.registry
        )
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.requests_active = Gauge("lakelog_http_requests_active", "Requests under way", registry=self.registry)

    def watch(self, broker: Broker, body_bytes: Callable[[], int], reply_bytes: Callable[[], int]) -> None:
        """Read the broker's topics and limits at every scrape from now on."""
        in_flight = Gauge(
            "lakelog_in_flight_bytes", "Bytes of records that wait for their commits", registry=self.registry
        )
        in_flight.set_function(lambda: broker.produce_path.in_flight.bytes)
        bodies = Gauge("lakelog_http_body_bytes", "Bytes of request bodies held", registry=self.registry)
        bodies.set_function(body_bytes)
        replies = Gauge("lakelog_http_reply_bytes", "Bytes of fetched records held for readers", registry=self.registry)
        replies.set_function(reply_bytes)
        hot = Gauge("lakelog_hot_tail_bytes", "Bytes of records held in memory", registry=self.registry)
        hot.set_function(lambda: broker.hot_tail.bytes)
        self.registry.register(_OpenTopics(broker))

    def snapshot(self) -> Snapshot:
        """All of it as it is now: topics come and go, so they are looked at where they do."""
        return Snapshot(self.registry.collect())

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request; looked up once per route and status, because this is on everybody's way."""
        series = self._answers.get((method, route, status))
        if series is None:
            series = (
                self.requests.labels(method, route, str(status)),
                self.request_seconds.labels(method, route),
            )
            self._answers[method, route, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def kafka_answered(self, api: str, seconds: float) -> None:
        self.kafka_requests.labels(api).inc()
        self.kafka_request_seconds.labels(api).observe(seconds)

    def committed(
        self, topic: str, *, records: int, size_bytes: int, requests: int, files: int, seconds: float
    ) -> None:
        self.messages_in.labels(topic).inc(records)
        self.bytes_in.labels(topic).inc(size_bytes)
        self.commits.labels(topic).inc()
        self.commit_seconds.observe(seconds)
        self.commit_records.observe(records)
        self.commit_requests.observe(requests)

    def fetched(self, topic: str, *, records: int, size_bytes: int) -> None:
        if records:
            self.messages_out.labels(topic).inc(records)
            self.bytes_out.labels(topic).inc(size_bytes)

    def read(self, *, from_memory: bool) -> None:
        self.reads.labels("memory" if from_memory else "file").inc()

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(name, doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, doc, labels, buckets=buckets, registry=self.registry)


class Snapshot(Collector):
    """What was counted at one time. To write it down takes longer than to look, and may be done in any thread."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families

    def text(self) -> bytes:
        return generate_latest(self)


class _OpenTopics(Collector):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        by_partition = ("topic", "partition")
        start = GaugeMetricFamily("lakelog_log_start_offset", "Lowest offset that is served", labels=by_partition)
        end = GaugeMetricFamily("lakelog_log_end_offset", "Offset of the next record", labels=by_partition)
        segments = GaugeMetricFamily("lakelog_log_segments", "Live files", labels=by_partition)
        size = GaugeMetricFamily("lakelog_log_size_bytes", "Bytes of the live files", labels=by_partition)
        version = GaugeMetricFamily("lakelog_table_version", "Version of the topic's table", labels=("topic",))
        for topic in self._broker.topics:
            if not topic.state.exists:
                continue
            version.add_metric((topic.name,), topic.state.version)
            for number, partition in enumerate(topic.state.partitions):
                labels = (topic.name, str(number))
                start.add_metric(labels, partition.log_start_offset)
                end.add_metric(labels, partition.next_offset)
                segments.add_metric(labels, len(partition.segments))
                size.add_metric(labels, partition.bytes)
        yield from (start, end, segments, size, version)
