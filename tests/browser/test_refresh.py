"""What is asked again and again leaves the reader's place alone, and holds still when it is told to."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import ASKED_AGAIN_MS, Open, Warehouse, row_of

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def some_topics(warehouse: Warehouse) -> None:
    warehouse.create("orders", 2)
    warehouse.create("returns", 2)


@pytest.mark.parametrize(
    ("path", "named", "asked"),
    [
        ("/topics", "orders", "**/ui/api/topics"),
        ("/topics/orders/config", "Alter retention.ms", "**/admin/topics/orders"),
        ("/topics/orders/partitions", "1", "**/topics/orders/segments"),
    ],
)
def test_the_focus_stays_where_it_is(
    page: Page, open_at: Open, warehouse: Warehouse, path: str, named: str, asked: str
) -> None:
    page.clock.install()
    open_at(path)
    main = page.get_by_role("main")
    focused = main.get_by_role("link", name=named, exact=True).or_(main.get_by_role("button", name=named, exact=True))
    focused.focus()
    warehouse.produce("orders", {"value": 1, "partition": 1})
    with page.expect_response(asked):
        page.clock.run_for(ASKED_AGAIN_MS)
    if path == "/topics/orders/partitions":
        ends = warehouse.http.get("/topics/orders/partitions/1/offsets").json()
        expect(page.locator(".partition").nth(1)).to_contain_text(f"0{ends['end_offset']}")
    with page.expect_response(asked):
        page.clock.run_for(ASKED_AGAIN_MS)
    expect(focused).to_be_focused()


def test_records_are_fetched_when_somebody_asks(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("read")
    warehouse.produce("read", {"value": "first"})
    page.clock.install()
    open_at("/topics/read")
    row_of(page, "Records", "first").get_by_role("button").click()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    for _ in range(2):
        with page.expect_response("**/admin/topics/read"):
            page.clock.run_for(ASKED_AGAIN_MS)
    expect(page.get_by_label("Record", exact=True)).to_be_visible()
    assert not any("/records" in url for url in fetched)


def test_a_plot_is_read_on_while_it_grows(page: Page, open_at: Open) -> None:
    lags = [5, 6, 7]

    def history(route: Route) -> None:
        times = [1_763_500_000_000 + 10_000 * index for index in range(len(lags))]
        route.fulfill(json={"times_ms": times, "lags": [{"topic": "orders", "partition": 0, "lag": lags}]})

    described = {"group_id": "billing", "state": "Empty", "protocol": "", "generation": 1, "members": []}
    page.route("**/admin/groups/billing", lambda route: route.fulfill(json=described))
    page.route("**/admin/groups/billing/lag", lambda route: route.fulfill(json=[]))
    page.route("**/ui/api/groups/billing/lag-history", history)
    page.clock.install()
    open_at("/groups/billing")
    chart = page.locator(".chart")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator(".reading")).to_contain_text("orders-0 6")
    lags.append(8)
    page.clock.run_for(ASKED_AGAIN_MS)
    expect(chart.locator("path.line")).to_have_attribute("d", re.compile("^M([^L]+L){3}[^L]+$"))
    expect(chart).to_be_focused()
    expect(chart.locator(".reading")).to_contain_text("orders-0 6")


def test_a_held_page_stands_still_but_for_what_is_done_there(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    page.clock.install()
    open_at("/topics/returns/config")
    dialog = page.get_by_role("dialog")
    records = page.locator(".figure", has_text="Records")
    retention = page.locator(".config", has_text="retention.ms").first
    expect(retention).to_contain_text("7 days")
    page.keyboard.press("p")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(ASKED_AGAIN_MS)
    assert asked == []

    page.get_by_role("button", name="Alter retention.ms", exact=True).click()
    dialog.get_by_label("Value").fill("3600000")
    page.get_by_role("button", name="Set").click()
    expect(retention).to_contain_text("1 hour")
    page.get_by_role("button", name="Produce").click()
    dialog.get_by_label("Value").fill("1")
    dialog.get_by_role("button", name="Produce").click()
    expect(records).to_contain_text("1")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(page.locator(".partition")).to_have_count(2)
    page.get_by_role("button", name="Add partitions").click()
    dialog.get_by_role("button", name="Add partitions").click()
    expect(page.locator(".partition")).to_have_count(3)

    warehouse.produce("returns", {"value": 2})
    page.keyboard.press("p")
    expect(records).to_contain_text("2")


def test_a_preview_is_of_what_is_chosen(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    reset = {"to": "latest", "topics": {"orders": None}}
    assert warehouse.http.post("/admin/groups/nightly/reset-offsets", json=reset).status_code == 200
    open_at("/groups/nightly")
    expect(row_of(page, "Partitions", "orders 0")).to_be_visible()
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    previewed = dialog.get_by_role("table", name="What would change")
    late: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if late:
            route.continue_()
        else:
            late.append(route)

    page.route("**/reset-offsets", hold_the_first)
    with page.expect_request("**/reset-offsets"):
        dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_label("To", exact=True).select_option("shift")
    dialog.get_by_label("Records").fill("-1")
    with page.expect_response("**/reset-offsets") as answered:
        late[0].continue_()
    answered.value.finished()
    # What it says is of the beginning, and the beginning is no longer chosen.
    expect(previewed).to_have_count(0)
    dialog.get_by_role("button", name="Preview").click()
    expect(previewed).to_be_visible()
    with page.expect_request("**/reset-offsets") as done:
        dialog.get_by_role("button", name="Reset offsets").click()
    assert done.value.post_data_json == {"shift": -1, "topics": None, "dry_run": False}
    expect(dialog).to_be_hidden()


def test_a_window_closes_by_a_click_that_begins_beside_it(page: Page, open_at: Open) -> None:
    open_at("/topics/orders")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    value = dialog.get_by_label("Value")
    value.fill("something typed")
    box = dialog.bounding_box()
    assert box is not None
    inside, beside = (box["x"] + 4, box["y"] + 4), (box["x"] - 40, box["y"] + 40)
    page.mouse.click(*inside)
    value.hover()
    page.mouse.down()
    page.mouse.move(*beside)
    page.mouse.up()
    expect(value).to_have_value("something typed")
    page.mouse.click(*beside)
    expect(dialog).to_be_hidden()
