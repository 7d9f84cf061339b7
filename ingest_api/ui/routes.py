"""What the console asks for beyond v2 and v3: many topics in one request, files, rates, groups in full, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from compaction_jobs.due import partition_status
from compaction_jobs.journal import Journal
from ingest_api.gateway import gateway_of
from ingest_api.media import JSON
from ingest_api.positions import INT32_MAX
from ingest_api.routes.fetch import TopicName
from ingest_api.routes.groups import GroupId
from ingest_api.routes.schemas import answered
from ingest_api.ui import rates, schemas
from ingest_api.ui.lag_history import LagHistory
from ingest_api.ui.rates import Rates
from ingest_api.ui.segments import segment_columns
from lakelog.delta.state import PartitionState
from lakelog.topics import Topic

RUNS_SHOWN = 500

router = APIRouter(prefix="/ui/api", tags=["console"])


@router.get(
    "/topics", summary="All topics in figures", response_class=Response, responses=answered(schemas.TOPICS, JSON)
)
async def topics(request: Request) -> Response:
    found = await gateway_of(request).broker.admin.all_topics(internal=True)
    return _json({"topics": [_topic(each, rates_of(request)) for each in found]})


@router.get(
    "/topics/{topic}", summary="A topic in figures", response_class=Response, responses=answered(schemas.TOPIC, JSON)
)
async def topic(request: Request, topic: TopicName) -> Response:
    return _json(_topic(await gateway_of(request).broker.topics.get(topic, max_age_ms=0), rates_of(request)))


@router.get(
    "/throughput",
    summary="What went in and out lately, of a topic or of all",
    response_class=Response,
    responses=answered(schemas.THROUGHPUT, JSON),
)
async def throughput(
    request: Request, topic: Annotated[str | None, Query(description="One topic; all together if not said")] = None
) -> Response:
    counted = rates_of(request)
    # Not the interval that is now, which would look like a fall.
    interval = counted.interval - 1
    counts = {flow: counted.of(topic).counts(interval + 1, flow)[1:-1] for flow in rates.FLOWS}
    return _json({"interval_ms": rates.INTERVAL_MS, "end_ms": (interval + 1) * rates.INTERVAL_MS, "counts": counts})


@router.get(
    "/topics/{topic}/segments",
    summary="A topic's files as columns",
    response_class=Response,
    responses=answered(schemas.SEGMENTS, JSON),
)
async def segments(
    request: Request,
    topic: TopicName,
    partition: Annotated[int | None, Query(description="One partition; all if not said", ge=0, le=INT32_MAX)] = None,
) -> Response:
    broker = gateway_of(request).broker
    opened = await broker.topics.get(topic, max_age_ms=0)
    if partition is not None:
        opened.partition(partition)
    wanted = range(len(opened.state.partitions)) if partition is None else [partition]
    now_ms = broker.clock.now_ms()
    return _json({"partitions": [segment_columns(opened.state, number, now_ms) for number in wanted]})


@router.get(
    "/groups", summary="All groups in figures", response_class=Response, responses=answered(schemas.GROUPS, JSON)
)
async def groups(request: Request) -> Response:
    service = gateway_of(request).groups
    return _json({"groups": [await _group_line(request, each.group_id) for each in await service.list_groups()]})


@router.get(
    "/groups/{group:path}/lag-history",
    summary="How far behind a group was lately",
    response_class=Response,
    responses=answered(schemas.LAG_HISTORY, JSON),
)
async def lag_history(request: Request, group: GroupId) -> Response:
    times_ms, lags = lags_of(request).of(group)
    series = [{"topic": topic, "partition": partition, "lag": lag} for (topic, partition), lag in lags.items()]
    return _json({"times_ms": times_ms, "lags": series})


@router.get(
    "/jobs", summary="Which jobs are due and what ran", response_class=Response, responses=answered(schemas.JOBS, JSON)
)
async def jobs(request: Request) -> Response:
    broker = gateway_of(request).broker
    now_ms, due, waiting, partitions = broker.clock.now_ms(), [], [], 0
    for topic in await broker.admin.all_topics():
        for number in range(len(topic.state.partitions)):
            status = partition_status(topic.state, number, now_ms)
            place = {"topic": topic.name, "partition": number}
            due += [{**place, "job": job, "reason": reason} for job, reason in status.due.items()]
            waiting += [{**place, "reason": status.waiting}] if status.waiting else []
            partitions += 1
    runs = await journal_of(request).newest(RUNS_SHOWN)
    return _json({"due": due, "waiting": waiting, "partitions": partitions, "runs": list(map(_run, runs))})


def rates_of(request: Request) -> Rates:
    found = request.app.state.rates
    assert isinstance(found, Rates)
    return found


def lags_of(request: Request) -> LagHistory:
    found = request.app.state.lag_history
    assert isinstance(found, LagHistory)
    return found


def journal_of(request: Request) -> Journal:
    found = request.app.state.journal
    assert isinstance(found, Journal)
    return found


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON, headers={"Cache-Control": "no-store"})


def _topic(topic: Topic, counted: Rates) -> dict[str, Any]:
    state, history = topic.state, counted.of(topic.name)
    parts, config = state.partitions, state.config
    newest_us = max((segment.max_timestamp_us for part in parts for segment in part.segments), default=None)
    return {
        "name": topic.name,
        "internal": topic.name.startswith("__"),
        "partitions": len(parts),
        "records": sum(map(_records, parts)),
        "bytes": sum(part.bytes for part in parts),
        "segments": sum(len(part.segments) for part in parts),
        "max_timestamp_ms": None if newest_us is None else newest_us // 1000,
        "cleanup_policy": ",".join(sorted(config.cleanup_policy)),
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
        "per_second": {flow: history.recent_per_second(counted.interval, flow) for flow in rates.FLOWS},
    }


def _records(part: PartitionState) -> int:
    """Those that are there: in a compacted topic fewer than offsets. The first file may begin before what is served."""
    start = part.log_start_offset
    return sum(min(segment.records, max(0, segment.end_offset - start)) for segment in part.segments)


async def _group_line(request: Request, group_id: str) -> dict[str, Any]:
    service = gateway_of(request).groups
    described, lags = await service.describe(group_id), await service.lag(group_id)
    return {
        "group_id": group_id,
        "state": described.phase.value,
        "members": len(described.members),
        "topics": sorted({each.topic for each in lags}.union(*(each.topics for each in described.members))),
        "lag": sum(each.lag or 0 for each in lags),
        "partitions": len(lags),
    }


def _run(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if name != "started_at"}
    return {**fields, "started_at_ms": int(row["started_at"].timestamp() * 1000)}
