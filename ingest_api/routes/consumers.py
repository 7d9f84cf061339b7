"""Consumers of groups, as in Confluent REST Proxy v2: make one, subscribe it, poll it, commit, delete it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Header, Path, Query
from pydantic import AliasChoices, Field
from starlette.requests import Request
from starlette.responses import Response

from consumer_groups.assignors import TopicPartition
from consumer_groups.state import Subscription
from consumer_groups.topic_patterns import check_pattern, fitting
from ingest_api import media
from ingest_api.consumers.consumer import Consumer, Poll
from ingest_api.consumers.options import (
    ConsumerOptions,
    format_of,
    invalid,
    milliseconds_of,
    min_bytes_of,
    reset_of,
    switch_of,
)
from ingest_api.encoding.records_out import arrow_stream, json_list
from ingest_api.errors import HttpError
from ingest_api.gateway import Gateway, address_of, gateway_of
from ingest_api.positions import INT32_MAX, INT64_MAX
from ingest_api.routes.direct import BoundedRoute
from ingest_api.routes.schemas import ASSIGNED, COMMITTED, CONSUMER, POLLED, SUBSCRIBED, a_list, answered
from ingest_api.routes.strict import Strict
from lakelog.errors import LakelogError
from lakelog.fetch import Fetched, Position, size_of
from lakelog.model.topic import check_topic_name

NAME_LENGTH_MAX = 249
# What a poll answers with when it does not say: enough that its cost is the records'.
POLL_BYTES = 4 * 1024 * 1024

GroupName = Annotated[str, Path(description="The group's name", max_length=NAME_LENGTH_MAX)]
InstanceName = Annotated[str, Path(description="The consumer's name", max_length=NAME_LENGTH_MAX)]

router = APIRouter(prefix="/consumers", tags=["consumers"], route_class=BoundedRoute)
INSTANCE = "/{group}/instances/{instance}"


class NewConsumer(Strict):
    """What REST Proxy v2 takes, and below it what is taken here beside."""

    name: Annotated[str | None, Field(description="Unique in its group; drawn if it is left out")] = None
    id: Annotated[str | None, Field(description="An old word for `name`, and goes before it")] = None
    format: Annotated[str, Field(description="binary, json, text or arrow")] = "binary"
    auto_offset_reset: Annotated[str, Field(alias="auto.offset.reset")] = "latest"
    auto_commit_enable: Annotated[str | bool, Field(alias="auto.commit.enable")] = True
    fetch_min_bytes: Annotated[
        int, Field(alias="fetch.min.bytes", validation_alias=AliasChoices("fetch.min.bytes", "responseMinBytes"))
    ] = 1
    request_timeout_ms: Annotated[
        int | None,
        Field(
            alias="consumer.request.timeout.ms",
            validation_alias=AliasChoices("consumer.request.timeout.ms", "requestWaitMs"),
        ),
    ] = None
    auto_commit_interval_ms: Annotated[int | None, Field(alias="auto.commit.interval.ms")] = None
    session_timeout_ms: Annotated[
        int | None, Field(alias="session.timeout.ms", description="How long it may be silent and keep its partitions")
    ] = None
    group_instance_id: Annotated[str | None, Field(alias="group.instance.id")] = None

    def options(self) -> ConsumerOptions:
        interval_ms = milliseconds_of("auto.commit.interval.ms", self.auto_commit_interval_ms, 0)
        defaults = ConsumerOptions()
        return ConsumerOptions(
            embedded=format_of(self.format),
            reset=reset_of(self.auto_offset_reset),
            auto_commit=switch_of("auto.commit.enable", self.auto_commit_enable),
            auto_commit_interval_ms=defaults.auto_commit_interval_ms if interval_ms is None else interval_ms,
            fetch_min_bytes=min_bytes_of(self.fetch_min_bytes),
            request_timeout_ms=milliseconds_of("consumer.request.timeout.ms", self.request_timeout_ms, 0),
            session_timeout_ms=milliseconds_of("session.timeout.ms", self.session_timeout_ms, 1),
            group_instance_id=self.group_instance_id,
        )


class Topics(Strict):
    topics: Annotated[list[str] | None, Field(description="Topics by name")] = None
    topic_pattern: Annotated[str | None, Field(description="Or: all whose whole name fits a regular expression")] = None


class Partition(Strict):
    topic: str
    partition: Annotated[int, Field(ge=0, le=INT32_MAX)]

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Partitions(Strict):
    partitions: list[Partition]


class OffsetOf(Partition):
    offset: Annotated[int, Field(ge=0, lt=INT64_MAX)]
    metadata: str | None = None


class Offsets(Strict):
    offsets: list[OffsetOf]


class TimeOf(Partition):
    timestamp: Annotated[
        datetime | Annotated[int, Field(ge=0, le=INT64_MAX // 1000)],
        Field(description="Milliseconds since 1970, or ISO 8601", union_mode="left_to_right"),
    ]


class Places(Strict):
    offsets: tuple[OffsetOf, ...] = ()
    timestamps: Annotated[tuple[TimeOf, ...], Field(description="At the first record of a time or later")] = ()


@router.post("/{group}", summary="Make a consumer", response_class=Response, responses=answered(CONSUMER))
async def create(request: Request, group: GroupName, new: NewConsumer | None = None) -> Response:
    new = new or NewConsumer()
    name = new.id if new.id is not None else new.name
    if name is not None and (not name or len(name) > NAME_LENGTH_MAX or "/" in name):
        raise invalid("name", name, f"1 to {NAME_LENGTH_MAX} characters without a slash")
    name, _ = gateway_of(request).consumers.create(group, name, new.options(), client_host(request))
    return _json(request, {"instance_id": name, "base_uri": base_uri(request, group, name)})


@router.delete(INSTANCE, status_code=204, summary="Delete a consumer", response_class=Response)
async def delete(request: Request, group: GroupName, instance: InstanceName) -> Response:
    await gateway_of(request).consumers.delete(group, instance)
    return Response(status_code=204)


@router.get(
    f"{INSTANCE}/subscription",
    summary="What a consumer subscribes to",
    response_class=Response,
    responses=answered(SUBSCRIBED),
)
async def subscription(request: Request, group: GroupName, instance: InstanceName) -> Response:
    gateway = gateway_of(request)
    consumer = gateway.consumers.get(group, instance)
    async with consumer.in_use():
        subscribed = consumer.subscription() or Subscription()
        topics = list(subscribed.topics)
        if (pattern := subscribed.pattern) is not None:
            topics += fitting(pattern, await gateway.broker.admin.list_topics())
    return _json(request, {"topics": topics})


@router.post(f"{INSTANCE}/subscription", status_code=204, summary="Subscribe to topics", response_class=Response)
async def subscribe(request: Request, group: GroupName, instance: InstanceName, wanted: Topics) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        if wanted.topics == [] and wanted.topic_pattern is None:
            await consumer.unsubscribe()  # as Kafka's consumer has it
        else:
            await consumer.subscribe(subscription_of(wanted.topics, wanted.topic_pattern))
    return Response(status_code=204)


@router.delete(f"{INSTANCE}/subscription", status_code=204, summary="Unsubscribe", response_class=Response)
async def unsubscribe(request: Request, group: GroupName, instance: InstanceName) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        await consumer.unsubscribe()
    return Response(status_code=204)


@router.get(
    f"{INSTANCE}/assignments", summary="What a consumer reads", response_class=Response, responses=answered(ASSIGNED)
)
async def assignments(request: Request, group: GroupName, instance: InstanceName) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        held = await consumer.assignment()
    return _json(request, {"partitions": [{"topic": topic, "partition": partition} for topic, partition in held]})


@router.post(f"{INSTANCE}/assignments", status_code=204, summary="Read certain partitions", response_class=Response)
async def assign(request: Request, group: GroupName, instance: InstanceName, wanted: Partitions) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        await consumer.assign(each.key for each in wanted.partitions)
    return Response(status_code=204)


@router.get(f"{INSTANCE}/records", summary="Poll", response_class=Response, responses=POLLED)
async def records(
    request: Request,
    group: GroupName,
    instance: InstanceName,
    timeout: Annotated[  # noqa: ASYNC109 - the name of the parameter of the request
        int | None, Query(description="How many milliseconds to wait for records", ge=-1, le=INT32_MAX)
    ] = None,
    max_bytes: Annotated[int, Query(description="At most so many bytes of records", ge=-1, le=INT64_MAX)] = -1,
    max_records: Annotated[int | None, Query(description="At most so many records", ge=1, le=INT64_MAX)] = None,
    number: Annotated[
        int | None,
        Header(
            alias="Lakelog-Poll",
            description="A number of this poll: sent again under it, it brings the same records once more",
            ge=0,
            le=INT64_MAX,
        ),
    ] = None,
) -> Response:
    gateway = gateway_of(request)
    consumer = gateway.consumers.get(group, instance)
    kind = consumer.options.reply_type(request.headers.get("accept", ""))
    most = gateway.broker.settings.fetch_max_bytes
    poll = Poll(
        timeout_ms=min(consumer.options.poll_timeout_ms(timeout), gateway.settings.request_timeout_ms),
        max_bytes=min(max_bytes if max_bytes > 0 else POLL_BYTES, most),
        min_bytes=consumer.options.fetch_min_bytes,
        max_records=max_records,
        number=number,
    )
    async with consumer.in_use(), gateway.replies.hold(poll.max_bytes) as held:
        body = await consumer.poll(
            poll,
            lambda replies: _body(gateway, consumer, replies, kind),
            lambda change: held.while_idle(gateway.unless_stopping(change, request)),
        )
        return held.response(body, kind, {})


@router.get(
    f"{INSTANCE}/offsets",
    summary="What the group has committed",
    response_class=Response,
    responses=answered(COMMITTED),
)
async def committed(
    request: Request, group: GroupName, instance: InstanceName, wanted: Partitions | None = None
) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        found = await consumer.committed(None if wanted is None else [each.key for each in wanted.partitions])
    offsets = [
        {"topic": topic, "partition": partition, "offset": offset, "metadata": metadata}
        for (topic, partition), (offset, metadata) in found.items()
    ]
    return _json(request, {"offsets": offsets})


@router.post(
    f"{INSTANCE}/offsets", summary="Commit", response_class=Response, responses=answered(a_list({}), doc="Committed")
)
async def commit(
    request: Request,
    group: GroupName,
    instance: InstanceName,
    offsets: Offsets | None = None,
    skip_missing: Annotated[bool, Query(description="Leave out partitions that are gone")] = False,
) -> Response:
    """Offsets are those of the last records that were read, as in REST Proxy: what is committed is one more."""
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        if offsets is None:
            await consumer.commit()
        else:
            places = {each.key: (each.offset + 1, each.metadata or "") for each in offsets.offsets}
            await consumer.commit(places, skip_missing=skip_missing)
    return _json(request, [])


@router.post(f"{INSTANCE}/positions", status_code=204, summary="Go to offsets or times", response_class=Response)
async def seek(request: Request, group: GroupName, instance: InstanceName, places: Places) -> Response:
    gateway = gateway_of(request)
    consumer = gateway.consumers.get(group, instance)
    async with consumer.in_use():
        wanted: dict[TopicPartition, int | Position] = {each.key: each.offset for each in places.offsets}
        for each in places.timestamps:
            found = await gateway.broker.offset_at(each.topic, each.partition, _milliseconds(each.timestamp))
            wanted[each.key] = found.offset if found.offset >= 0 else Position.LATEST
        await consumer.seek(wanted)
    return Response(status_code=204)


@router.post(f"{INSTANCE}/positions/beginning", status_code=204, summary="Go to the beginning", response_class=Response)
async def seek_to_beginning(request: Request, group: GroupName, instance: InstanceName, wanted: Partitions) -> Response:
    return await _seek_all(request, group, instance, wanted, Position.EARLIEST)


@router.post(f"{INSTANCE}/positions/end", status_code=204, summary="Go to the end", response_class=Response)
async def seek_to_end(request: Request, group: GroupName, instance: InstanceName, wanted: Partitions) -> Response:
    return await _seek_all(request, group, instance, wanted, Position.LATEST)


async def _seek_all(request: Request, group: str, instance: str, wanted: Partitions, at: Position) -> Response:
    consumer = gateway_of(request).consumers.get(group, instance)
    async with consumer.in_use():
        await consumer.seek({each.key: at for each in wanted.partitions})
    return Response(status_code=204)


async def _body(gateway: Gateway, consumer: Consumer, replies: Sequence[Fetched], kind: str) -> bytes | memoryview:
    size = size_of(replies)
    if kind == media.ARROW:
        return memoryview(await gateway.compute(size, lambda: arrow_stream(replies, with_topics=True)))
    embedded = consumer.options.embedded
    assert embedded is not None
    return await gateway.compute(size, lambda: json_list(replies, embedded))


def subscription_of(topics: Iterable[str] | None, pattern: str | None) -> Subscription:
    if (topics is None) == (pattern is None):
        raise HttpError(422, "a subscription names either topics or a topic_pattern")
    if pattern is not None:
        try:
            check_pattern(pattern)
        except LakelogError as error:
            raise HttpError(422, error.message) from None
        return Subscription(pattern=pattern)
    for name in topics or ():
        check_topic_name(name)
    return Subscription(topics=tuple(dict.fromkeys(topics or ())))


def client_host(request: Request) -> str:
    return request.client.host if request.client else ""


def base_uri(request: Request, group: str, name: str) -> str:
    return f"{address_of(request)}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"


def _milliseconds(time: datetime | int) -> int:
    if isinstance(time, int):
        return time
    return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def _json(request: Request, content: Any) -> Response:
    # A client may name the format that it reads in every request, as REST Proxy allows it.
    offered = (*media.METADATA_OUT, *(each.media_type for each in media.Embedded), media.ARROW)
    kind = media.negotiate(request.headers.get("accept", ""), offered)
    return Response(msgspec.json.encode(content), media_type=media.V2 if kind == media.ARROW else kind)
