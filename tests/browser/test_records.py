"""Records in the console: as they are stored, one of them in full, the newest of many, and those that come in."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import PHONE_PIXELS, Open, Warehouse, fits_across, row_of

pytestmark = pytest.mark.browser

BINARY = "application/vnd.kafka.binary.v2+json"
LINES = "application/x-ndjson"
LIVE_PAUSE_MS = 250  # what has come in is on the page, and a stream that has ended is not taken up again yet
REPLY_RECORDS = 2000  # of a topic that is made up: as many as a reply has room for
# Digits, a fraction and names that would not survive being read into values and written again.
EXACT = '{"id": 1234567890123456789, "ratio": 1.0, "twice": 1, "twice": 2,  "none": [], "text": "} \\" ]"}'

Holds: TypeAlias = Callable[[int, int], bool]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def stored(warehouse: Warehouse, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = warehouse.http.get(f"/topics/{topic}/records", headers={"Accept": BINARY}).json()
    return found


def test_json_is_stored_and_shown_as_it_was_typed(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("exact")
    open_at("/topics/exact")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill(EXACT)
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("status")).to_contain_text("at offset 0")
    page.keyboard.press("Escape")
    assert [each["value"] for each in stored(warehouse, "exact")] == [b64(EXACT)]

    page.get_by_role("button", name="Fetch").click()
    row_of(page, "Records", "1234567890123456789").get_by_role("button").click()
    shown = page.get_by_label("Record", exact=True).locator("pre.json")
    laid_out = ['"id": 1234567890123456789,', '"ratio": 1.0,', '"twice": 1,', '"twice": 2,', '"none": [],']
    expect(shown).to_have_text("\n".join(["{", *(f"  {each}" for each in laid_out), '  "text": "} \\" ]"', "}"]))
    expect(shown.locator(".json-name")).to_have_count(6)
    expect(shown.locator(".json-digits")).to_have_count(4)


def test_any_partition_may_be_chosen(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("wide", 250)
    open_at("/topics/wide/config")
    expect(page.locator(".figure", has_text="Partitions")).to_contain_text("250")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("1")
    dialog.get_by_label("Partition").fill("249")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("status")).to_contain_text("in partition 249 at offset 0")


def test_forms_of_a_record(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("forms")
    values = ['{"a": [1]}', "plain text,\nin two lines", None]
    warehouse.produce("forms", *({"key": "k", "value": value} for value in values))
    body = {"records": [{"value": base64.b64encode(b"\x00\xff").decode()}]}
    headers = {"Content-Type": BINARY}
    assert warehouse.http.post("/topics/forms", content=json.dumps(body), headers=headers).status_code == 200
    open_at("/topics/forms?from=oldest")
    cells = page.get_by_role("table", name="Records").locator("tbody td:nth-child(5) code")
    expect(cells).to_have_text(['"{\\"a\\": [1]}"', '"plain text,\\nin two lines"', "null", "00 ff"])
    cells.nth(1).click()
    shown = page.get_by_label("Record", exact=True).locator("section", has_text="Value")
    expect(shown).to_contain_text("json, 27 B")
    page.get_by_role("button", name="Text", exact=True).click()
    expect(shown).to_contain_text("text, 27 B")
    expect(cells.nth(0)).to_have_attribute("title", "text")
    page.get_by_role("button", name="HEX").click()
    expect(shown.locator("pre")).to_contain_text("000000  22 70 6c 61 69 6e 20 74 65 78 74")
    expect(cells.nth(0)).to_have_text("22 7b 5c 22 61 5c 22 3a 20 5b 31 5d 7d 22")


def test_what_a_record_says_is_text_and_nothing_else(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    hostile = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"
    deep = "[" * 20_000 + "]" * 20_000
    warehouse.create("hostile")
    for key, value in ((hostile, hostile), (hostile, json.dumps({hostile: hostile, "__proto__": 1})), ("deep", deep)):
        record = {
            "key": {"type": "STRING", "data": key},
            "value": {"type": "STRING", "data": value},
            "headers": [{"name": hostile, "value": b64(hostile)}],
        }
        reply = warehouse.http.post("/v3/clusters/lakelog/topics/hostile/records", json=record).json()
        assert reply["error_code"] == 200
    open_at("/topics/hostile?from=oldest")
    detail = page.get_by_label("Record", exact=True)
    rows = page.get_by_role("table", name="Records").locator("tbody tr[data-key]")
    expect(rows).to_have_count(3)
    for index in range(2):
        rows.nth(index).get_by_role("button").click()
        expect(detail.locator("pre").first).to_have_text(hostile)
        expect(detail.locator("pre").last).to_contain_text(hostile)
        expect(detail.get_by_role("row")).to_contain_text(hostile)
    expect(detail.locator("pre").last).to_contain_text('"__proto__": 1')
    rows.nth(2).get_by_role("button").click()
    expect(detail).to_contain_text("json, 39.1 KiB")
    page.get_by_role("searchbox", name="Filter").fill("onerror=")
    page.get_by_role("button", name="Fetch").click()
    expect(page.get_by_text("3 records: that is all.")).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("width", [1280, 800, PHONE_PIXELS])
def test_a_record_takes_the_focus_and_gives_it_back(
    page: Page, open_at: Open, warehouse: Warehouse, width: int
) -> None:
    topic = f"many-{width}"
    warehouse.create(topic)
    warehouse.produce(topic, *({"value": {"number": number, "text": "long " * 50}} for number in range(60)))
    page.set_viewport_size({"width": width, "height": 800})
    open_at(f"/topics/{topic}")
    layout = page.locator(".beside")
    alone = layout.evaluate("each => getComputedStyle(each).gridTemplateColumns")
    opened, older = (page.locator(f'tr[data-key="0:{offset}"] button') for offset in (40, 39))
    opened.focus()
    before = page.evaluate("scrollY")
    page.keyboard.press("Enter")
    detail = page.get_by_label("Record", exact=True)
    expect(detail).to_be_focused()
    expect(detail.get_by_role("heading", name="Partition 0, offset 40")).to_be_in_viewport()
    expect(detail.get_by_role("button", name="Close")).to_be_in_viewport()
    assert fits_across(page, width)
    # To look at it in another form is no reason to take the focus.
    page.get_by_role("button", name="HEX").evaluate("each => (each.focus({ preventScroll: true }), each.click())")
    expect(detail).to_contain_text("000000  7b 22")
    expect(page.get_by_role("button", name="HEX")).to_be_focused()

    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    expect(opened).to_be_focused()
    assert page.evaluate("scrollY") == before
    assert layout.evaluate("each => getComputedStyle(each).gridTemplateColumns") == alone
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(detail.get_by_role("heading", name="offset 39")).to_be_in_viewport()
    detail.get_by_role("button", name="Close").click()
    expect(older).to_be_focused()


class MadeUp:
    """A topic that no test could fill: `end` offsets in each partition, of which some still have a record."""

    def __init__(self, page: Page, name: str, partitions: int, end: int, holds: Holds) -> None:
        self.asked: list[dict[int, str]] = []
        self._end = end
        self._holds = holds
        marks = [
            {"partition": each, "log_start_offset": 0, "high_watermark": end, "segments": 1, "bytes": 1}
            for each in range(partitions)
        ]
        figures = {"records": end, "bytes": 1, "segments": 1}
        page.route(f"**/admin/topics/{name}", lambda route: route.fulfill(json={"configs": [], "partitions": marks}))
        page.route(f"**/ui/api/topics/{name}", lambda route: route.fulfill(json=figures))
        page.route(f"**/topics/{name}/records?*", self._fetch)

    def _fetch(self, route: Route) -> None:
        (text,) = parse_qs(urlsplit(route.request.url).query)["positions"]
        positions = {int(part): at for part, _, at in (each.partition(":") for each in text.split(","))}
        self.asked.append(positions)
        records: list[dict[str, Any]] = []
        ends = dict.fromkeys(positions, self._end)
        for part, at in positions.items():
            for offset in self._from(part, self._end if at == "latest" else int(at)):
                if len(records) == REPLY_RECORDS:
                    ends[part] = offset
                    break
                records.append({"partition": part, "offset": offset, "timestamp": offset, "key": None, "value": "MQ=="})
        following = ",".join(f"{part}:{end}" for part, end in ends.items())
        route.fulfill(json=records, headers={"Lakelog-Next-Offset": following})

    def _from(self, partition: int, start: int) -> Iterable[int]:
        return (offset for offset in range(start, self._end) if self._holds(partition, offset))


def test_the_newest_of_a_topic_that_is_nearly_empty_are_found_soon(page: Page, open_at: Open) -> None:
    sparse = MadeUp(page, "sparse", 2, 1_000_000, lambda partition, offset: offset % 2000 == 1000)
    open_at("/topics/sparse")
    expect(page.get_by_text("records.")).to_be_visible()
    rows = page.get_by_role("table", name="Records").locator("tbody tr[data-key]")
    expect(rows.first).to_contain_text("999,000")
    assert len(sparse.asked) < 20


def test_older_records_are_asked_of_partitions_that_have_some(page: Page, open_at: Open) -> None:
    dense = MadeUp(page, "dense", 3, 100_000, lambda partition, offset: True)
    open_at("/topics/dense")
    expect(page.get_by_text("300 records.")).to_be_visible()
    more = page.get_by_role("button", name="More")
    more.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("600 records.")).to_be_visible()
    expect(more).to_be_focused()
    assert dense.asked == [
        {0: "99900", 1: "99900", 2: "99900"},
        {0: "99800", 1: "99800", 2: "99800"},
    ]
    for shown in range(900, 3301, 300):
        page.keyboard.press("Enter")
        expect(page.get_by_text(f"{shown:,} records.")).to_be_visible()
    # What is newer has filled the reply: partitions that are read make room for the one that is not.
    assert dense.asked[-2:] == [
        {0: "98900", 1: "98900", 2: "98900"},
        {0: "latest", 1: "latest", 2: "98900"},
    ]


def test_a_search_for_what_is_not_there_asks_whether_to_go_on(page: Page, open_at: Open) -> None:
    dense = MadeUp(page, "searched", 1, 1_000_000, lambda partition, offset: True)
    open_at("/topics/searched?filter=nowhere")
    more = page.get_by_role("button", name="More")
    expect(more).to_be_visible()
    searched = page.get_by_text("records fit.")
    expect(searched).to_contain_text("0 of")
    assert len(dense.asked) <= 100
    said = searched.inner_text()
    more.click()
    expect(searched).not_to_have_text(said)
    expect(more).to_be_visible()
    assert len(dense.asked) <= 200


def test_all_that_comes_in_is_counted_and_filtered(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("busy")
    with page.expect_response("**/busy/stream?*"):
        open_at("/topics/busy?from=live&filter=needle")
    warehouse.produce("busy", {"value": "needle"}, *({"value": number} for number in range(1500)))
    expect(page.get_by_text("1 record shown of 1,501 that came in.")).to_be_visible()
    expect(row_of(page, "Records", "needle")).to_be_visible()


def test_what_ends_a_stream_is_shown_as_it_is(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("ended")
    alert = page.get_by_role("alert")
    refusal = {"error_code": 40301, "message": "not for you"}
    page.route("**/ended/stream?*", lambda route: route.fulfill(status=403, json=refusal))
    open_at("/topics/ended?from=live")
    expect(alert).to_have_text("40301not for you")

    page.unroute("**/ended/stream?*")
    last = json.dumps({"partition": 0, "offset": 0, "timestamp": 1, "key": None, "value": b64("the last")})
    body = f"{last}\n\n{json.dumps({**refusal, 'message': 'no longer for you'})}\n"
    page.route("**/ended/stream?*", lambda route: route.fulfill(body=body, content_type=LINES))
    page.get_by_role("button", name="Restart").click()
    expect(alert).to_have_text("40301no longer for you")
    expect(row_of(page, "Records", "the last")).to_be_visible()


def test_a_stream_that_breaks_off_is_taken_up_again(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("broken")
    page.route("**/broken/stream?*", lambda route: route.abort())
    open_at("/topics/broken?from=live")
    expect(page.get_by_role("alert")).to_contain_text("The gateway does not answer")
    warehouse.produce("broken", {"value": "meanwhile"})
    page.unroute("**/broken/stream?*")
    expect(row_of(page, "Records", "meanwhile")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_comes_in_waits_while_the_page_is_held(page: Page, open_at: Open, warehouse: Warehouse) -> None:
    warehouse.create("held")
    page.clock.install()
    open_at("/topics/held")
    expect(page.get_by_text("There is nothing in this part")).to_be_visible()
    lines = "".join(
        json.dumps({"partition": 0, "offset": each, "timestamp": 1, "key": None, "value": "MQ=="}) + "\n"
        for each in range(3)
    )
    page.route("**/held/stream?*", lambda route: route.fulfill(body=lines, content_type=LINES))
    page.keyboard.press("p")
    with page.expect_response("**/held/stream?*") as streamed:
        page.get_by_role("button", name="Live", exact=True).first.click()
        page.clock.run_for(LIVE_PAUSE_MS)
    streamed.value.finished()
    page.clock.run_for(LIVE_PAUSE_MS)
    rows = page.get_by_role("table", name="Records").locator("tbody tr[data-key]")
    expect(page.get_by_text("Held still")).to_be_visible()
    expect(rows).to_have_count(0)
    page.keyboard.press("p")
    page.clock.run_for(LIVE_PAUSE_MS)
    expect(rows).to_have_count(3)
