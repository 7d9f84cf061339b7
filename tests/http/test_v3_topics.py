"""v3's view of the cluster: clusters, brokers, topics, partitions and configuration, with links that lead somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import BASE_URL, OpenGateway, Served
from tests.http.requests import JSON, create, error_of, send

CLUSTER = "/v3/clusters/lakelog"
ORDERS = f"{CLUSTER}/topics/orders"


async def got(served: Served, path: str) -> dict[str, Any]:
    reply = await served.get(path)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == JSON
    body: dict[str, Any] = reply.json()
    assert body["metadata"]["self"] == f"{BASE_URL}{path}"
    return body


def related(body: Any) -> list[str]:
    """Every address in a body: its own, and those that it refers to."""
    if isinstance(body, list):
        return [address for each in body for address in related(each)]
    if not isinstance(body, dict):
        return []
    here = [body[name] for name in ("self", "related") if isinstance(body.get(name), str)]
    return here + [address for each in body.values() for address in related(each)]


async def test_the_cluster_and_its_broker(served: Served) -> None:
    clusters = await got(served, "/v3/clusters")
    assert (clusters["kind"], clusters["metadata"]["next"]) == ("KafkaClusterList", None)
    assert clusters["data"] == [await got(served, CLUSTER)]
    assert clusters["data"][0]["metadata"]["resource_name"] == "crn:///kafka=lakelog"
    (broker,) = (await got(served, f"{CLUSTER}/brokers"))["data"]
    assert broker == await got(served, f"{CLUSTER}/brokers/0")
    assert (broker["kind"], broker["broker_id"]) == ("KafkaBroker", 0)
    configs = (await got(served, f"{CLUSTER}/brokers/0/configs"))["data"]
    assert (await got(served, f"{CLUSTER}/brokers/-/configs"))["data"] == configs
    settings = {each["name"]: each for each in configs}
    assert settings["num_partitions"]["value"] == "1"
    assert settings["num_partitions"]["is_read_only"]


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, ("gateway", 9092)),
        ({"kafka": "0.0.0.0:1234"}, ("gateway", 1234)),
        ({"public_url": "https://streams.example.com"}, ("streams.example.com", 9092)),
        ({"kafka_advertised": "kafka.example.com:9192"}, ("kafka.example.com", 9192)),
        ({"kafka": "127.0.0.1:0"}, ("gateway", None)),
        ({"kafka": "none"}, (None, None)),
    ],
    ids=str,
)
async def test_a_broker_is_where_kafkas_clients_find_it(
    open_gateway: OpenGateway, settings: dict[str, str], address: tuple[str | None, int | None]
) -> None:
    async with open_gateway(**settings) as client:
        broker = (await client.get(f"{CLUSTER}/brokers/0")).json()
        assert (broker["host"], broker["port"]) == address


@pytest.mark.parametrize("public_url", ["https://streams.example.com", "https://example.com:8443/lakelog/"])
async def test_links_begin_with_the_public_url(open_gateway: OpenGateway, public_url: str) -> None:
    async with open_gateway(public_url=public_url) as client:
        await create(client, "orders")
        bodies = [(await client.get(path)).json() for path in (f"{CLUSTER}/topics", ORDERS, f"{ORDERS}/partitions/0")]
    addresses = [address for body in bodies for address in related(body)]
    assert f"{public_url.rstrip('/')}{ORDERS}/configs" in addresses
    assert all(address.startswith(f"{public_url.rstrip('/')}/v3/clusters/") for address in addresses)


async def test_the_cluster_has_the_name_that_it_was_given(open_gateway: OpenGateway) -> None:
    async with open_gateway(cluster_id="prod.eu-1") as client:
        assert (await got(client, "/v3/clusters/prod.eu-1"))["cluster_id"] == "prod.eu-1"
        assert error_of(await client.get(CLUSTER))[:2] == (404, 404)


async def test_every_link_leads_to_what_it_names(served: Served) -> None:
    await create(served, "orders", 2)
    # What there is never anything of, and says so: access rules, and moves of replicas.
    nothing_there = {
        f"{CLUSTER}/acls": 400,
        **{f"{ORDERS}/partitions/{p}/reassignment": 404 for p in (0, 1)},
    }
    seen, waiting = set[str](), ["/v3/clusters"]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        reply = await served.get(path)
        assert reply.status_code == nothing_there.get(path, 200), (path, reply.text)
        if reply.status_code == 200:
            assert reply.json()["metadata"]["self"] == f"{BASE_URL}{path}"
            waiting += [address.removeprefix(BASE_URL) for address in related(reply.json())]
    assert {f"{ORDERS}/configs/retention.ms", f"{ORDERS}/partitions/1/replicas/0", *nothing_there} <= seen


async def test_the_life_of_a_topic(served: Served) -> None:
    new = {
        "topic_name": "orders",
        "partitions_count": 2,
        "replication_factor": 3,
        "configs": [{"name": "retention.ms", "value": "1000"}, {"name": "cleanup.policy", "value": None}],
    }
    created = await served.post(f"{CLUSTER}/topics", json=new)
    assert created.status_code == 201
    topic = created.json()
    assert topic == await got(served, ORDERS)
    assert (topic["kind"], topic["topic_name"], topic["partitions_count"]) == ("KafkaTopic", "orders", 2)
    assert (topic["replication_factor"], topic["is_internal"]) == (1, False)
    assert topic["metadata"]["resource_name"] == "crn:///kafka=lakelog/topic=orders"
    assert error_of(await served.post(f"{CLUSTER}/topics", json=new))[:2] == (400, 40002)

    assert (await got(served, f"{CLUSTER}/topics"))["data"] == [topic]
    partitions = (await got(served, f"{ORDERS}/partitions"))["data"]
    assert [each["partition_id"] for each in partitions] == [0, 1]
    assert partitions[1] == await got(served, f"{ORDERS}/partitions/1")
    (replica,) = (await got(served, f"{ORDERS}/partitions/1/replicas"))["data"]
    assert (replica["is_leader"], replica["is_in_sync"], replica["broker_id"]) == (True, True, 0)

    grown = await served.patch(ORDERS, json={"partitions_count": 4})
    assert (grown.status_code, grown.json()["partitions_count"]) == (200, 4)
    assert error_of(await served.patch(ORDERS, json={"partitions_count": 3}))[:2] == (400, 40002)

    assert (await served.delete(ORDERS)).status_code == 204
    assert error_of(await served.get(ORDERS))[:2] == (404, 40403)
    assert (await got(served, f"{CLUSTER}/topics"))["data"] == []


async def test_null_is_as_good_as_left_out(served: Served) -> None:
    optional = ("partitions_count", "replication_factor", "replicas_assignments", "configs", "validate_only")
    new = {"topic_name": "orders", **dict.fromkeys(optional)}
    assert (await served.post(f"{CLUSTER}/topics", json=new)).status_code == 201
    change = {"name": "segment.ms", "value": "5", "operation": None}
    altered = await served.post(f"{ORDERS}/configs:alter", json={"data": [change], "validate_only": None})
    assert altered.status_code == 204
    assert (await got(served, f"{ORDERS}/configs/segment.ms"))["value"] == "5"


async def test_what_would_be_done_is_checked_and_not_done(served: Served) -> None:
    new = {"topic_name": "orders", "partitions_count": 3, "validate_only": True}
    reply = await served.post(f"{CLUSTER}/topics", json=new)
    assert (reply.status_code, reply.json()["partitions_count"]) == (200, 3)
    bad = {**new, "configs": [{"name": "retention.ms", "value": "soon"}]}
    assert error_of(await served.post(f"{CLUSTER}/topics", json=bad))[:2] == (400, 40002)
    assert (await served.get("/topics")).json() == []
    await create(served, "orders")
    assert error_of(await served.post(f"{CLUSTER}/topics", json=new))[:2] == (400, 40002)
    change = {"data": [{"name": "retention.ms", "value": "5"}], "validate_only": True}
    assert (await served.post(f"{ORDERS}/configs:alter", json=change)).status_code == 204
    assert (await got(served, f"{ORDERS}/configs/retention.ms"))["is_default"]
    change["data"] = [{"name": "retention.ms", "value": "soon"}]
    assert error_of(await served.post(f"{ORDERS}/configs:alter", json=change))[:2] == (400, 40002)


async def test_configuration(served: Served) -> None:
    await create(served, "orders")
    retention = f"{ORDERS}/configs/retention.ms"
    entry = await got(served, retention)
    default = {"name": "retention.ms", "value": "604800000", "source": "DEFAULT_CONFIG"}
    assert (entry["kind"], entry["value"], entry["is_default"]) == ("KafkaTopicConfig", "604800000", True)
    assert (entry["source"], entry["synonyms"]) == ("DEFAULT_CONFIG", [default])

    assert (await served.put(retention, json={"value": "1000"})).status_code == 204
    entry = await got(served, retention)
    own = {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    assert (entry["value"], entry["is_default"], entry["synonyms"]) == ("1000", False, [own, default])
    entries = (await got(served, f"{ORDERS}/configs"))["data"]
    assert entry in entries
    assert (await got(served, f"{CLUSTER}/topics/-/configs"))["data"] == entries

    assert (await served.delete(retention)).status_code == 204
    assert (await got(served, retention))["is_default"]

    changes = [
        {"name": "retention.ms", "value": 5},
        {"name": "cleanup.policy", "value": "compact", "operation": "SET"},
        {"name": "segment.ms", "operation": "DELETE"},
    ]
    assert (await served.post(f"{ORDERS}/configs:alter", json={"data": changes})).status_code == 204
    changed = {each["name"]: each["value"] for each in (await got(served, f"{ORDERS}/configs"))["data"]}
    assert (changed["retention.ms"], changed["cleanup.policy"]) == ("5", "compact")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v3/clusters/other", None, 404, 404),
        ("GET", "/v3/clusters/other/topics", None, 404, 404),
        ("POST", "/v3/clusters/other/topics", {"topic_name": "x"}, 404, 404),
        ("GET", f"{CLUSTER}/brokers/1", None, 404, 404),
        ("GET", f"{CLUSTER}/brokers/x", None, 404, 404),
        ("GET", f"{CLUSTER}/brokers/0/configs/none", None, 404, 404),
        ("GET", f"{CLUSTER}/topics/none", None, 404, 40403),
        ("DELETE", f"{CLUSTER}/topics/none", None, 404, 40403),
        ("GET", f"{CLUSTER}/topics/none/configs", None, 404, 40403),
        ("GET", f"{CLUSTER}/topics/none/partitions", None, 404, 40403),
        ("GET", f"{CLUSTER}/topics/none/partitions/-/reassignment", None, 404, 40403),
        ("GET", f"{CLUSTER}/topics/a%20b", None, 400, 40002),
        ("GET", f"{ORDERS}/partitions/1", None, 404, 40403),
        ("GET", f"{ORDERS}/partitions/x", None, 404, 404),
        ("GET", f"{ORDERS}/partitions/0/replicas/1", None, 404, 404),
        ("GET", f"{ORDERS}/configs/none", None, 404, 404),
        ("PUT", f"{ORDERS}/configs/none", {"value": "1"}, 404, 404),
        ("DELETE", f"{ORDERS}/configs/none", None, 404, 404),
        ("PUT", f"{ORDERS}/configs/retention.ms", {"value": None}, 400, 40002),
        ("PUT", f"{ORDERS}/configs/retention.ms", {"value": "soon"}, 400, 40002),
        ("PUT", f"{ORDERS}/configs/retention.ms", {"values": "1"}, 400, 400),
        ("POST", f"{CLUSTER}/topics", {}, 400, 400),
        ("POST", f"{CLUSTER}/topics", {"topic_name": "a b"}, 400, 40002),
        ("POST", f"{CLUSTER}/topics", {"topic_name": "x", "partitions_count": 1_001}, 400, 40002),
        ("POST", f"{CLUSTER}/topics", {"topic_name": "x", "partitions_count": "many"}, 400, 400),
        (
            "POST",
            f"{CLUSTER}/topics",
            {"topic_name": "x", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}]},
            400,
            40002,
        ),
        ("POST", f"{ORDERS}/configs:alter", {"data": []}, 400, 400),
        ("POST", f"{ORDERS}/configs:alter", {"data": [{"name": "retention.ms"}]}, 400, 40002),
        ("POST", f"{ORDERS}/configs:alter", {"data": [{"name": "none", "value": "1"}]}, 404, 404),
        ("POST", f"{ORDERS}/configs:alter", {"data": [{"name": "none", "operation": "DELETE"}]}, 404, 404),
        ("POST", f"{CLUSTER}/topics/none/configs:alter", {"data": [{"name": "segment.ms", "value": "1"}]}, 404, 40403),
        ("POST", f"{ORDERS}/configs:alter", {"data": [{"name": "a", "value": "1", "operation": "ADD"}]}, 400, 400),
        (
            "POST",
            f"{ORDERS}/configs:alter",
            {"data": [{"name": "retention.ms", "value": "1"}, {"name": "segment.ms", "value": "soon"}]},
            400,
            40002,
        ),
        ("POST", f"{ORDERS}/configs:alter", {"data": [{"name": "segment.ms", "value": "1"}] * 2}, 400, 40002),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_refused_changes_nothing(
    served: Served, method: str, path: str, body: Any, status: int, code: int
) -> None:
    await create(served, "orders")
    await send(served, "orders", "v")
    before = (await served.get("/admin/topics/orders")).json()
    reply = await served.request(method, path, json=body)
    assert error_of(reply)[:2] == (status, code), reply.text
    assert (await served.get("/admin/topics/orders")).json() == before
    assert (await served.get("/topics")).json() == ["orders"]
