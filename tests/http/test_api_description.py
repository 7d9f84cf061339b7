"""The API's description against the API: requests made from it never fail, and replies are as it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ingest_api.app import create_app
from ingest_api.settings import load_settings
from tests.gateway_process import gateway
from tests.http.requests import ARROW

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


# Streams do not end by themselves.
api = schemathesis.openapi.from_dict(create_app(load_settings({}, {})).openapi()).exclude(path_regex="/stream$")


@schemathesis.serializer(ARROW)
def arrow(_: schemathesis.SerializationContext, value: object) -> bytes:
    """What is made up for a binary body is not Arrow, and has to be refused like everything else that is not."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def served_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("described"), {"access_log": "off"}) as server:
        yield server.url


# Of these nearly all is read, by paths that are made alike.
@api.include(path_regex="^/(v3|ui)/").parametrize()
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_replies_of_v3_and_the_console_are_as_described(served_at: str, case: schemathesis.Case) -> None:
    if "cluster_id" in case.path_parameters:
        case.path_parameters["cluster_id"] = "lakelog"
    case.call_and_validate(base_url=served_at, checks=CHECKS)


@api.exclude(path_regex="^/(v3|ui)/").parametrize()
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_replies_are_as_described(served_at: str, case: schemathesis.Case) -> None:
    # A fetch would wait for records that nobody sends, and a commit that is given a millisecond may well answer 504.
    case.query.pop("timeout", None)
    case.call_and_validate(base_url=served_at, checks=CHECKS)
