"""The commit budget lets a burst through and then no more small files per second than it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.log.budget import BURST_FILES, FULL_PRICE_BYTES, SMALL_FILE_BYTES, CommitBudget, cheaper_from, price


def test_a_burst_goes_through_without_waiting():
    budget = CommitBudget(50, now_ms=0)
    for _ in range(BURST_FILES):
        assert budget.wait_ms(1, 0) == 0
        budget.spend(1, 0)
    assert budget.wait_ms(1, 0) == pytest.approx(20)


def test_a_commit_of_many_files_is_paid_off_before_the_next():
    budget = CommitBudget(50, now_ms=0)
    budget.spend(BURST_FILES, 0)
    budget.spend(8, 0)
    assert budget.wait_ms(1, 0) == pytest.approx(9 * 20)
    assert budget.wait_ms(1, 100) == pytest.approx(9 * 20 - 100)
    assert budget.wait_ms(1, 180) == 0


def test_what_costs_nothing_never_waits():
    budget = CommitBudget(1, now_ms=0)
    budget.spend(2 * BURST_FILES, 0)
    assert budget.wait_ms(0, 0) == 0


def test_what_costs_less_waits_for_less():
    budget = CommitBudget(50, now_ms=0)
    budget.spend(BURST_FILES, 0)
    assert budget.wait_ms(0.25, 0) == pytest.approx(5)


def test_a_commit_of_more_files_than_a_burst_waits_for_no_more_than_a_burst():
    budget = CommitBudget(50, now_ms=0)
    assert budget.wait_ms(10 * BURST_FILES, 0) == 0


@given(size=st.integers(0, 2 * SMALL_FILE_BYTES))
def test_on_a_disk_a_file_costs_half_from_the_size_on_that_is_told(size: int):
    cost, cheaper = price(size, every_file_is_paid=False), cheaper_from(size, every_file_is_paid=False)
    assert (cost == 1) == (size <= FULL_PRICE_BYTES)
    assert (cost == 0) == (size >= SMALL_FILE_BYTES)
    if size < SMALL_FILE_BYTES:
        assert size < cheaper <= SMALL_FILE_BYTES
        assert price(cheaper, every_file_is_paid=False) <= cost / 2


@given(size=st.integers(0, 2 * SMALL_FILE_BYTES))
def test_on_an_object_store_every_small_file_costs_the_same(size: int):
    assert price(size, every_file_is_paid=True) == (1 if size < SMALL_FILE_BYTES else 0)
    assert cheaper_from(size, every_file_is_paid=True) == SMALL_FILE_BYTES


def test_a_changed_rate_holds_from_now_on():
    budget = CommitBudget(50, now_ms=0)
    budget.spend(BURST_FILES, 0)
    budget.files_per_second = 1
    assert budget.wait_ms(1, 0) == pytest.approx(1000)


def test_an_idle_year_saves_up_no_more_than_a_burst():
    budget = CommitBudget(50, now_ms=0)
    year_ms = 365 * 86_400_000
    budget.spend(BURST_FILES, year_ms)
    assert budget.wait_ms(1, year_ms) > 0


@given(st.integers(1, 1_000), st.lists(st.tuples(st.floats(0, 500), st.integers(0, 20)), max_size=300))
def test_no_more_files_than_the_burst_and_the_rate_allow(rate: int, commits: list[tuple[float, int]]):
    """Each commit comes a while after the one before, and waits as long as it is told to."""
    budget = CommitBudget(rate, now_ms=0)
    now_ms, spent = 0.0, 0
    for pause_ms, files in commits:
        now_ms += pause_ms
        now_ms += budget.wait_ms(files, now_ms)
        # Waiting the time out is enough: nobody is told to wait twice.
        assert budget.wait_ms(files, now_ms) <= 1e-6
        budget.spend(files, now_ms)
        spent += files
        assert spent <= BURST_FILES + rate * now_ms / 1000 + 1e-6
