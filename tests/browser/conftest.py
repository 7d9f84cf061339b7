"""A gateway process with something in it, and a real Chromium that looks at it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway

# Without these it asks hosts on the network for this and that; as root it does not start in its sandbox.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 15_000
ASKED_AGAIN_MS = 10_000  # none of the pages that are looked at here waits longer before it asks the gateway again
PHONE_PIXELS = 390

Open: TypeAlias = Callable[[str], None]

expect.set_options(timeout=PATIENCE_MS)


class Warehouse:
    """A gateway, and how tests fill it."""

    def __init__(self, server: LocalGateway, folder: Path) -> None:
        self.url = server.url
        self.kafka = server.kafka
        self.folder = folder
        self.http = httpx.Client(base_url=server.url, timeout=60)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        configs = [{"name": name.replace("_", "."), "value": value} for name, value in config.items()]
        body = {"topic_name": topic, "partitions_count": partitions, "configs": configs}
        assert self.http.post("/v3/clusters/lakelog/topics", json=body).status_code == 201

    def produce(self, topic: str, *records: dict[str, Any]) -> None:
        body = json.dumps({"records": records})
        reply = self.http.post(f"/topics/{topic}", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 200, reply.text


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("console")
    with gateway(folder, {"access_log": "off"}) as server:
        yield Warehouse(server, folder / "warehouse")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not on the PATH: `make browser` installs it on Debian as root")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext, warehouse: Warehouse) -> Iterator[Page]:
    """A page that must not fail by itself, and must not ask anybody but the gateway."""
    opened = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    assert faults == []
    assert [each for each in asked if not each.startswith(warehouse.url)] == []


@pytest.fixture
def open_at(page: Page, warehouse: Warehouse) -> Open:
    def go(path: str) -> None:
        page.goto(f"{warehouse.url}/ui/#{path}")

    return go


def row_of(page: Page, table: str, text: str) -> Locator:
    return page.get_by_role("table", name=table, exact=True).get_by_role("row").filter(has_text=text)


def fits_across(page: Page, width: int = PHONE_PIXELS) -> bool:
    """Nothing sticks out to the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth") <= width)
