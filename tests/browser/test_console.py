"""What people do in the console, by clicking: look at topics, records, files, groups and jobs, and change them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer
from playwright.sync_api import Browser, Page, expect

from compaction_jobs.journal import Journal
from compaction_jobs.outcome import Amount, Outcome
from lakelog.clock import SystemClock
from lakelog.delta.store import open_store
from tests.browser.conftest import ASKED_AGAIN_MS, PATIENCE_MS, PHONE_PIXELS, Open, Warehouse, fits_across, row_of

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def some_topics(warehouse: Warehouse) -> None:
    warehouse.create("orders", 2, retention_ms="86400000")
    for number in range(30):
        warehouse.produce(
            "orders",
            {
                "key": f"order-{number}",
                "value": {"number": number, "city": "Oslo" if number % 10 else "Lima"},
                "partition": number % 2,
                "headers": [{"key": "source", "value": "d2Vi"}],
            },
        )
    warehouse.create("customers", 1, cleanup_policy="compact")
    warehouse.create("empty")


def names(page: Page) -> list[str]:
    return page.get_by_role("table", name="Topics").locator("tbody th").all_inner_texts()


def test_topics_are_found_and_sorted(page: Page, open_at: Open) -> None:
    open_at("/topics")
    expect(row_of(page, "Topics", "orders")).to_contain_text("1 day")
    expect(row_of(page, "Topics", "customers")).to_contain_text("latest per key")
    page.get_by_role("button", name="Records", exact=True).last.click()
    expect(page.get_by_role("columnheader", name="Records")).to_have_attribute("aria-sort", "descending")
    assert names(page)[0] == "orders"
    page.keyboard.press("/")
    page.keyboard.type("cust")
    expect(page.get_by_text("1 topic", exact=True)).to_be_visible()
    assert names(page) == ["customers"]
    page.get_by_role("searchbox").fill("nowhere")
    expect(page.get_by_text("No topic fits")).to_be_visible()


def test_a_topic_is_created_grown_altered_and_deleted(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    open_at("/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_role("button", name="Create topic").click()
    # As the API says it, and what was typed is still there.
    expect(dialog.get_by_role("alert")).to_contain_text("40002 TOPIC_ALREADY_EXISTS")
    expect(dialog.get_by_role("alert")).to_contain_text("there is a topic 'orders' already")
    dialog.get_by_label("Name").fill("returns")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Clean up").select_option("compact")
    dialog.get_by_label("Further configuration").fill("segment.bytes=2048")
    dialog.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name="returns", level=1)).to_be_visible()
    configs = {each["name"]: each for each in warehouse.http.get("/admin/topics/returns/configs").json()}
    assert {name for name, each in configs.items() if not each["is_default"]} == {"cleanup.policy", "segment.bytes"}

    page.get_by_role("button", name="Add partitions").click()
    dialog.get_by_label("Partitions from now on").fill("3")
    dialog.get_by_role("button", name="Add partitions").click()
    expect(dialog).to_be_hidden()
    assert len(warehouse.http.get("/topics/returns/partitions").json()) == 3

    page.get_by_role("link", name="Configuration").click()
    page.get_by_role("button", name="Alter retention.ms", exact=True).click()
    dialog.get_by_label("Value").fill("soon")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.get_by_role("alert")).to_contain_text("retention.ms is 'soon', but it takes a whole number")
    dialog.get_by_label("Value").fill("3600000")
    dialog.get_by_role("button", name="Set").click()
    page.get_by_label("Changed only").check()
    expect(page.locator(".config", has_text="retention.ms")).to_contain_text("1 hour")
    page.get_by_role("button", name="Alter retention.ms", exact=True).click()
    dialog.get_by_role("button", name="Take it back").click()
    expect(page.locator(".config", has_text="retention.ms")).to_have_count(0)

    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_label("Type returns to go on").fill("returns")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    assert "returns" not in warehouse.http.get("/topics").json()


def test_records_by_offset_and_time_decoded_and_filtered(page: Page, open_at: Open) -> None:
    open_at("/topics/orders")
    expect(page.get_by_text("30 records: that is all.")).to_be_visible()
    page.get_by_role("searchbox", name="Filter").fill("lima")
    page.get_by_role("button", name="Fetch").click()
    expect(page.get_by_text("3 of 30 records fit: that is all.")).to_be_visible()
    page.get_by_role("searchbox", name="Filter").fill("")

    page.get_by_role("button", name="Offset", exact=True).click()
    page.get_by_label("Partition", exact=True).select_option("1")
    page.get_by_label("Offset", exact=True).fill("12")
    page.get_by_role("button", name="Fetch").click()
    expect(page.get_by_text("3 records: that is all.")).to_be_visible()
    row = row_of(page, "Records", "order-25")
    row.get_by_role("button", name="12").click()
    detail = page.get_by_label("Record", exact=True)
    expect(detail).to_contain_text("Partition 1, offset 12")
    expect(detail).to_contain_text('"city": "Oslo"')
    expect(detail.get_by_role("row", name="source")).to_contain_text("web")
    page.get_by_role("button", name="HEX").click()
    expect(detail).to_contain_text("000000  7b 22 6e 75 6d")
    page.get_by_role("button", name="Auto", exact=True).click()

    page.get_by_role("button", name="Time", exact=True).click()
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Fetch").click()
    expect(page.get_by_text("15 records: that is all.")).to_be_visible()


def test_a_record_is_produced_and_seen_live(page: Page, open_at: Open) -> None:
    open_at("/topics/empty?from=live")
    expect(page.get_by_text("Waiting for records")).to_be_visible()
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("{")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not sentValue is not JSON")
    dialog.get_by_label("Key").fill("ada")
    dialog.get_by_label("Value").fill('{"item": "lamp"}')
    dialog.get_by_label("Headers").fill("trace: 8f3a")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("status")).to_contain_text("in partition 0 at offset 0")
    page.keyboard.press("Escape")
    row = row_of(page, "Records", "lamp")
    expect(row).to_contain_text("ada")
    row.get_by_role("button").click()
    expect(page.get_by_label("Record", exact=True).get_by_role("row", name="trace")).to_contain_text("8f3a")


def test_files_along_the_offsets(page: Page, open_at: Open) -> None:
    open_at("/topics/orders/partitions")
    strips = page.locator("canvas.strip")
    expect(strips).to_have_count(2)
    expect(page.locator("p.legend")).to_contain_text("active: still written to")
    strips.nth(1).hover()
    expect(page.locator(".pointed")).to_contain_text("partition=1/")
    strips.nth(1).click()
    expect(page.get_by_role("heading", name="Files of partition 1")).to_be_visible()
    expect(page.locator("tr.chosen")).to_have_count(1)
    expect(row_of(page, "Files", "partition=1/0000000000000000")).not_to_have_count(0)


@pytest.fixture
def member(warehouse: Warehouse) -> Iterator[Consumer]:
    """Somebody who reads on a thread of its own until the test is over."""
    settings: dict[str, Any] = {
        "bootstrap.servers": warehouse.kafka,
        "group.id": "billing",
        "client.id": "worker-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    read = consumer.consume(10, timeout=PATIENCE_MS / 1000)
    assert read
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_with_a_member_then_reset_and_deleted(
    page: Page, open_at: Open, warehouse: Warehouse, member: Consumer
) -> None:
    open_at("/groups")
    expect(row_of(page, "Groups", "billing")).to_contain_text("Stable")
    page.get_by_role("link", name="billing").click()
    expect(row_of(page, "Members", "worker-1")).to_contain_text("orders 0 1")
    expect(row_of(page, "Partitions", "orders 0")).to_contain_text("worker-1")

    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).select_option("offset")
    dialog.get_by_label("Offset").fill("3")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("table", name="What would change").get_by_role("row").nth(1)).to_contain_text("3")
    dialog.get_by_role("button", name="Reset offsets").click()
    expect(dialog.get_by_role("alert")).to_contain_text("NON_EMPTY_GROUP")
    member.close()
    dialog.get_by_role("button", name="Reset offsets").click()
    expect(dialog).to_be_hidden()
    committed = {each["committed"] for each in warehouse.http.get("/admin/groups/billing/lag").json()}
    assert committed == {3}
    # Drawn once it was noted twice.
    expect(page.locator(".chart path.line")).not_to_have_count(0, timeout=30_000)

    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_label("Type billing to go on").fill("billing")
    dialog.get_by_role("button", name="Delete group").click()
    expect(page.get_by_role("heading", name="Groups", level=1)).to_be_visible()
    assert warehouse.http.get("/admin/groups").json() == []


def test_jobs_that_are_due_and_that_ran(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("old", 1, retention_ms="1", segment_ms="1")
    warehouse.produce("old", {"value": 1}, {"value": 2})
    outcome = Outcome(
        job="merge",
        topic="orders",
        partition=1,
        reason="40 small files",
        before=Amount(40, 4_000_000, 1000),
        after=Amount(1, 1_000_000, 1000),
        seconds=1.5,
    )
    clock = SystemClock()
    writing = Journal(open_store(str(warehouse.folder)), clock).write("run-1", clock.now_ms(), [outcome])
    with ThreadPoolExecutor() as elsewhere:  # here Playwright's loop is running
        elsewhere.submit(asyncio.run, writing).result()
    open_at("/jobs")
    expect(row_of(page, "Due", "old")).to_contain_text("retention")
    expect(row_of(page, "What ran", "orders")).to_contain_text("3.8 MiB → 977 KiB")
    expect(page.locator(".figure", has_text="Files saved")).to_contain_text("39")


def test_keys_colours_and_a_phone(browser: Browser, warehouse: Warehouse) -> None:
    context = browser.new_context(viewport={"width": PHONE_PIXELS, "height": 844}, color_scheme="dark")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{warehouse.url}/ui/")
    expect(row_of(page, "Topics", "orders")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(page.get_by_role("heading", name="Groups", level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    dark = background()
    page.get_by_role("button", name="Colours: auto").click()
    assert background() != dark
    reset = {"to": "earliest", "topics": {"orders": None}}
    assert warehouse.http.post("/admin/groups/nightly/reset-offsets", json=reset).status_code == 200
    for path, dialogs in (
        ("/topics", ["Create topic"]),
        ("/topics/orders", ["Produce", "Add partitions", "Delete"]),
        ("/topics/orders/partitions", []),
        ("/topics/orders/config", ["Alter retention.ms"]),
        ("/groups", []),
        ("/groups/nightly", ["Reset offsets", "Delete"]),
        ("/jobs", []),
        ("/api", []),
    ):
        page.goto(f"{warehouse.url}/ui/#{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert fits_across(page), path
        for name in dialogs:
            page.get_by_role("button", name=name, exact=True).click()
            dialog = page.get_by_role("dialog")
            box = dialog.bounding_box()
            assert box is not None
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= PHONE_PIXELS, name
            assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth"), name
            page.keyboard.press("Escape")
            expect(dialog).to_be_hidden()
    assert warehouse.http.delete("/admin/groups/nightly").status_code == 204
    context.close()


def test_a_gateway_that_does_not_answer_is_said_and_asked_again(page: Page, open_at: Open) -> None:
    page.clock.install()
    open_at("/topics")
    expect(row_of(page, "Topics", "orders")).to_be_visible()
    page.route("**/ui/api/**", lambda route: route.abort())
    page.clock.run_for(ASKED_AGAIN_MS)
    expect(page.get_by_role("alert").first).to_contain_text("The gateway does not answer")
    expect(row_of(page, "Topics", "orders")).to_be_visible()
    page.unroute("**/ui/api/**")
    page.clock.run_for(ASKED_AGAIN_MS)
    expect(page.get_by_role("alert")).to_have_count(0)


def figures(name: str, **others: Any) -> dict[str, Any]:
    """A topic as the console is told of it."""
    return {
        "name": name,
        "internal": False,
        "partitions": 1,
        "records": 0,
        "bytes": 0,
        "segments": 1,
        "max_timestamp_ms": None,
        "cleanup_policy": "delete",
        "retention_ms": -1,
        "retention_bytes": -1,
        "per_second": {"records_in": 0, "bytes_in": 0, "records_out": 0, "bytes_out": 0},
        **others,
    }


def test_only_the_rows_that_can_be_seen_are_drawn(page: Page, open_at: Open) -> None:
    topics = [figures(f"topic-{number:04d}") for number in range(1000)]
    page.route("**/ui/api/topics", lambda route: route.fulfill(json={"topics": topics}))
    open_at("/topics")
    expect(page.get_by_text("1,000 topics")).to_be_visible()
    assert len(names(page)) < 100
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last = page.get_by_role("link", name="topic-0999")
    expect(last).to_be_visible()
    assert len(names(page)) < 100
    # A row with the focus does not draw the page back.
    last.focus()
    page.evaluate("scrollBy(0, -1200)")
    expect(page.get_by_role("link", name="topic-0960")).to_be_in_viewport()
    expect(last).not_to_be_in_viewport()


def test_the_api_is_described_and_searched(page: Page, warehouse: Warehouse) -> None:
    page.goto(f"{warehouse.url}/docs")
    expect(page.get_by_role("heading", name="API", level=1)).to_be_visible()
    described = warehouse.http.get("/openapi").json()["paths"]
    operations = sum(len(methods) for methods in described.values())
    expect(page.get_by_text(f"{operations} operations", exact=True)).to_be_visible()
    page.get_by_role("searchbox").fill("post /topics/{topic}")
    expect(page.get_by_text("2 operations", exact=True)).to_be_visible()
    page.get_by_text("Append records to a topic").click()
    shown = page.locator("details[open]")
    expect(shown).to_contain_text("Lakelog-Producer-Id")
    expect(shown).to_contain_text("application/vnd.kafka.binary.v2+json")
    page.get_by_role("searchbox").fill("nothing of the kind")
    expect(page.get_by_text("No operation fits")).to_be_visible()


def test_sizes_rates_and_throughput_are_shown(page: Page, open_at: Open) -> None:
    busy = {"records_in": 1234.5, "bytes_in": 1e6, "records_out": 2.25, "bytes_out": 1e3}
    shown = [figures("busy", records=1_234_567, bytes=5 * 1024**3, per_second=busy), figures("quiet")]
    counts = {flow: [0] * 178 + [5 * rate, 10 * rate] for flow, rate in busy.items()}
    throughput = {"interval_ms": 5000, "end_ms": 1_763_500_000_000, "counts": counts}
    page.route("**/ui/api/topics", lambda route: route.fulfill(json={"topics": shown}))
    page.route("**/ui/api/throughput", lambda route: route.fulfill(json=throughput))
    open_at("/topics")
    row = row_of(page, "Topics", "busy")
    for text in ("1.2M", "5.0 GiB", "1,235/s", "2.3/s"):
        expect(row).to_contain_text(text)
    expect(row_of(page, "Topics", "quiet")).not_to_contain_text("/s")

    chart = page.locator(".chart")
    expect(chart.locator("path.line")).to_have_count(2)
    for line in chart.locator("path.line").all():
        assert (line.get_attribute("d") or "").count("L") == 179
    reading = chart.locator(".reading")
    expect(reading).to_be_hidden()
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(reading).to_contain_text("in 2,469/s")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(reading).to_contain_text("in 0/s")
    page.get_by_role("button", name="Bytes", exact=True).click()
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(reading).to_contain_text("in 1.9 MiB/s")


def test_rows_are_gone_through_by_keys(page: Page, open_at: Open) -> None:
    open_at("/topics")
    first, second = (page.get_by_role("table", name="Topics").locator("tbody th a").nth(index) for index in (0, 1))
    first.focus()
    page.keyboard.press("ArrowDown")
    expect(second).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="customers", level=1)).to_be_visible()


def test_a_warehouse_without_topics_says_how_to_make_one(page: Page, open_at: Open) -> None:
    page.route("**/ui/api/topics", lambda route: route.fulfill(json={"topics": []}))
    open_at("/topics")
    expect(page.get_by_text("No topics yet")).to_be_visible()
    expect(page.locator(".nothing code")).to_have_text("lakelog produce orders")


@pytest.mark.parametrize("path", ["/topics/%", "/nowhere"])
def test_an_address_of_nothing_says_so(page: Page, open_at: Open, path: str) -> None:
    open_at(path)
    expect(page.get_by_text("There is no such page")).to_be_visible()
    page.get_by_role("link", name="All topics").click()
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()


def test_the_id_of_a_group_may_be_anything(page: Page, open_at: Open) -> None:
    name = 'a/b c%?#"<i>'
    line = {"group_id": name, "state": "Empty", "members": 0, "topics": [], "lag": 0, "partitions": 0}
    page.route("**/ui/api/groups", lambda route: route.fulfill(json={"groups": [line]}))
    open_at("/groups")
    with page.expect_request(f"**/admin/groups/{quote(name, safe='')}"):
        page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
