"""Configurations of topics, described and changed, and the settings of the process, described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ingest_api.kafka.calls import NODE_ID, Call, failed
from ingest_api.kafka.schemas import Message, Reply
from lakelog.config import ConfigEntry, TopicConfig
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import check_not_internal

TOPIC, BROKER = 2, 4
# Where a value comes from, in Kafka's numbers.
_SET_ON_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


async def describe_configs(call: Call) -> Reply:
    return {"results": [await _describe(call, resource) for resource in call.request.resources]}


async def _describe(call: Call, resource: Message) -> Reply:
    names = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = await _entries(call, resource)
    except LakelogError as error:
        return {**names, **failed(error)}
    wanted = resource.configuration_keys  # none at all are all of them
    return {
        **names,
        "configs": [_entry(call, resource, each) for each in entries if not wanted or each.name in wanted],
    }


async def _entries(call: Call, resource: Message) -> Iterable[ConfigEntry]:
    broker = call.gateway.broker
    if resource.resource_type == TOPIC:
        return (await broker.admin.describe_topic(resource.resource_name)).config.describe()
    if resource.resource_type == BROKER:
        _check_node(resource.resource_name)
        return [*call.gateway.settings.describe(), *broker.settings.describe()]
    raise LakelogError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no configs here")


def _entry(call: Call, resource: Message, entry: ConfigEntry) -> Reply:
    on_topic = resource.resource_type == TOPIC
    source = _DEFAULT if entry.is_default else _SET_ON_TOPIC if on_topic else _STATIC_BROKER
    synonyms = [{"name": entry.name, "value": entry.default, "source": _DEFAULT}]
    if not entry.is_default:
        synonyms.insert(0, {"name": entry.name, "value": entry.value, "source": source})
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": not on_topic,
        "config_source": source,
        "config_type": _TYPES.get(entry.type, 0),
        "synonyms": synonyms if call.request.include_synonyms else [],
        "documentation": entry.doc if call.request.include_documentation else None,
    }


def created_configs(config: TopicConfig) -> list[Reply]:
    """As the reply to a new topic has them."""
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "config_source": _DEFAULT if entry.is_default else _SET_ON_TOPIC,
        }
        for entry in config.describe()
    ]


async def alter_configs(call: Call) -> Reply:
    """The configs that are named are set; all others go back to their defaults."""
    return {"responses": [await _alter(call, resource, _replacement) for resource in call.request.resources]}


async def incremental_alter_configs(call: Call) -> Reply:
    return {"responses": [await _alter(call, resource, _increment) for resource in call.request.resources]}


async def _alter(call: Call, resource: Message, changes_of: Any) -> Reply:
    names = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        if resource.resource_type != TOPIC:
            raise LakelogError(
                ErrorCode.INVALID_REQUEST, "only topics can be changed; settings of the process are given at its start"
            )
        check_not_internal(resource.resource_name)
        admin = call.gateway.broker.admin
        current = (await admin.describe_topic(resource.resource_name)).config
        to_set, to_unset = changes_of(resource.configs, current)
        await admin.alter_config(resource.resource_name, to_set, to_unset, validate_only=call.request.validate_only)
    except LakelogError as error:
        return {**names, **failed(error)}
    return names


Changes = tuple[Mapping[str, str], Iterable[str]]


def _replacement(configs: Iterable[Message], current: TopicConfig) -> Changes:
    to_set = {each.name: each.value for each in configs if each.value is not None}
    return to_set, [name for name in current.overrides if name not in to_set]


def _increment(configs: Iterable[Message], current: TopicConfig) -> Changes:
    to_set: dict[str, str] = {}
    to_unset: list[str] = []
    values = {entry.name: (entry.value, entry.type) for entry in current.describe()}
    for each in configs:
        if each.name in to_set or each.name in to_unset:
            raise LakelogError(ErrorCode.INVALID_REQUEST, f"{each.name} is named twice")
        if each.config_operation == _DELETE:
            to_unset.append(each.name)
        elif each.value is None:
            raise LakelogError(ErrorCode.INVALID_REQUEST, f"{each.name} has no value")
        elif each.config_operation == _SET:
            to_set[each.name] = each.value
        elif each.config_operation in (_APPEND, _SUBTRACT) and values.get(each.name, ("", ""))[1] == "list":
            items = [item for item in values[each.name][0].split(",") if item]
            given = [item.strip() for item in each.value.split(",")]
            kept = [item for item in items if item not in given]
            to_set[each.name] = ",".join(kept + given if each.config_operation == _APPEND else kept)
        else:
            raise LakelogError(
                ErrorCode.INVALID_CONFIG, f"operation {each.config_operation} can't be done to {each.name}"
            )
    return to_set, to_unset


def _check_node(name: str) -> None:
    # The empty name stands for what all nodes have in common.
    if name not in ("", str(NODE_ID)):
        raise LakelogError(ErrorCode.INVALID_REQUEST, f"there is no node {name!r}; the only one is {NODE_ID}")
