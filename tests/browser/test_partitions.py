"""Ten thousand files of a partition: few rows, one strip, and a mark that stays on its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ASKED_AGAIN_MS, Open, Warehouse, row_of

pytestmark = pytest.mark.browser

FILES = 10_000
EACH = 100  # offsets of a file


@pytest.fixture(scope="module", autouse=True)
def topic(warehouse: Warehouse) -> None:
    warehouse.create("large", cleanup_policy="compact")


def state_of(number: int) -> str:
    """Clean, then dirty, then a few that are still written to."""
    return "clean" if number < FILES // 2 else "dirty" if number < FILES - 10 else "active"


def segments(numbers: Sequence[int]) -> dict[str, Any]:
    """The files from each of these numbers up to the next."""
    following = [*numbers[1:], FILES]
    return {
        "partition": 0,
        "log_start_offset": 0,
        "high_watermark": FILES * EACH,
        "cleaned_up_to": FILES * EACH // 2,
        "base_offset": [each * EACH for each in numbers],
        "end_offset": [each * EACH for each in following],
        "records": [(end - each) * EACH for each, end in zip(numbers, following, strict=True)],
        "bytes": [1000] * len(numbers),
        "min_timestamp_ms": [0] * len(numbers),
        "max_timestamp_ms": [each * 1000 for each in numbers],
        "state": [state_of(each) for each in numbers],
        "file": [f"partition=0/{each:020d}.parquet" for each in numbers],
    }


def colours(strip: Locator) -> list[int]:
    """In the middle of the strip at a quarter, at three quarters and at the end of it, as one number each."""
    found: list[int] = strip.evaluate(
        """canvas => {
            const paint = canvas.getContext("2d");
            return [0.25, 0.75, 0.9999].map((share) => {
                const [red, green, blue, alpha] = paint.getImageData(
                    Math.floor(share * (canvas.width - 1)), canvas.height / 2, 1, 1).data;
                return alpha && (red << 16) + (green << 8) + blue;
            });
        }"""
    )
    return found


def test_ten_thousand_files_are_drawn_and_marked(page: Page, open_at: Open) -> None:
    numbers = list(range(FILES))
    page.clock.install()
    page.route("**/topics/large/segments", lambda route: route.fulfill(json={"partitions": [segments(numbers)]}))
    open_at("/topics/large/partitions")
    rows = page.get_by_role("table", name="Files").locator("tbody tr[data-key]")
    expect(rows.first).to_contain_text("999,900")
    assert rows.count() < 100
    for state in ("active: still written to", "dirty: sealed, not compacted yet", "clean: compacted"):
        expect(page.locator("p.legend")).to_contain_text(state)
    expect(row_of(page, "Files", "999,900").locator(".chip")).to_have_text("active")
    expect(row_of(page, "Files", "998,900").locator(".chip")).to_have_text("dirty")

    strip = page.get_by_role("img", name="Partition 0: 10 active, 4990 dirty, 5000 clean")
    box = strip.bounding_box()
    assert box is not None
    clean, dirty, active = colours(strip)
    assert len({clean, dirty, active}) == 3
    assert 0 not in {clean, dirty, active}

    page.get_by_role("button", name="998,500").click()
    marked = page.locator("tr.chosen")
    expect(marked).to_have_attribute("data-key", f"partition=0/{9985:020d}.parquet")
    numbers[9000:9980] = [9000]  # a merge of files before it
    page.clock.run_for(ASKED_AGAIN_MS)
    expect(page.get_by_role("img", name="Partition 0: 10 active, 4011 dirty, 5000 clean")).to_be_visible()
    expect(marked).to_have_attribute("data-key", f"partition=0/{9985:020d}.parquet")
    numbers[-15:] = [9985]
    page.clock.run_for(ASKED_AGAIN_MS)
    expect(page.locator(".partition")).to_contain_text("9,007")
    expect(marked).to_have_attribute("data-key", f"partition=0/{9985:020d}.parquet")


def test_files_that_are_sealed_and_never_compacted(page: Page, open_at: Open) -> None:
    sealed = segments([0, 5000, 9999])
    sealed["state"] = ["sealed", "sealed", "active"]
    page.route("**/topics/large/segments", lambda route: route.fulfill(json={"partitions": [sealed]}))
    open_at("/topics/large/partitions")
    expect(page.locator("p.legend")).to_contain_text("sealed: full or old: never written again")
    chips = page.get_by_role("table", name="Files").locator(".chip")
    expect(chips).to_have_text(["active", "sealed", "sealed"])
    strip = page.locator("canvas.strip")
    expect(strip).to_have_attribute("aria-label", "Partition 0: 1 active, 2 sealed")
    strip.hover(position={"x": 10, "y": 5})
    expect(page.locator(".pointed")).to_contain_text("offsets 0 to 499,999, 500,000 records")
