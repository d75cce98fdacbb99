"""Lists read page after page, and stop when the provider's pages do not advance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import responses

from payments_integration.client import Client, transport
from payments_integration.exceptions import NoAnswer, NotFound, PagingError
from tests.unit.client import samples
from tests.unit.client.samples import BASE, CASES

PAGED = [case for case in CASES if case.paged]
SAMPLES = {
    "payments": samples.PAYMENT,
    "payouts": samples.PAYOUT,
    "refunds": samples.REFUND,
    "events": samples.EVENT,
}
every_list = pytest.mark.parametrize("name", sorted(SAMPLES))


def items(name: str, *numbers: int) -> list[dict[str, Any]]:
    prefix = SAMPLES[name]["id"].rstrip("1")
    return [{**SAMPLES[name], "id": f"{prefix}{number}"} for number in numbers]


def serve(
    provider: responses.RequestsMock, name: str, pages: Callable[[str | None], dict[str, Any]]
) -> list[str | None]:
    asked: list[str | None] = []

    def callback(request: Any) -> tuple[int, dict[str, str], str]:
        assert request.params["limit"] == "100"
        assert len(asked) < 10, "it does not end"
        asked.append(request.params.get("starting_after"))
        return 200, {}, json.dumps(pages(asked[-1]))

    provider.add_callback("GET", f"{BASE}/{name}", callback)
    return asked


def ids(name: str, found: Any) -> list[str]:
    return [json.loads(one.body)["id"] if name == "events" else one.id for one in found]


@every_list
def test_a_list_reads_all_pages(name: str, client: Client, provider: responses.RequestsMock) -> None:
    first, second, third = items(name, 9, 8), items(name, 7), items(name, 6, 5)
    answers = {
        None: samples.page(*first, has_more=True),
        first[-1]["id"]: samples.page(*second, has_more=True),
        second[-1]["id"]: samples.page(*third),
    }
    asked = serve(provider, name, lambda cursor: answers[cursor])
    resource = getattr(client, name)
    assert ids(name, samples.each(client, name)) == [item["id"] for item in first + second + third]
    assert asked == list(answers)
    assert [page.data.cursor for page in resource.pages()] == [
        first[-1]["id"],
        second[-1]["id"],
        third[-1]["id"],
    ]
    assert [len(page.data.items) for page in resource.pages(first[-1]["id"])] == [1, 2]


@every_list
def test_pages_are_fetched_when_they_are_needed(name: str, client: Client, provider: responses.RequestsMock) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 9), has_more=True))
    found = samples.each(client, name)
    assert asked == []
    next(found)
    assert asked == [None]


@every_list
def test_filters_go_with_every_page(name: str, client: Client, provider: responses.RequestsMock) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 8 if cursor else 9), has_more=not cursor))
    filters = {"payments": "status", "payouts": "status", "refunds": "payment_id", "events": "type"}
    list(getattr(client, name).pages(**{filters[name]: "x"}))
    assert len(asked) == 2
    assert all(f"{filters[name]}=x" in str(call.request.url) for call in provider.calls)


@every_list
def test_an_empty_list_has_no_items(name: str, client: Client, provider: responses.RequestsMock) -> None:
    serve(provider, name, lambda cursor: samples.page())
    assert list(samples.each(client, name)) == []


@every_list
def test_an_empty_page_with_more_is_a_paging_error(
    name: str, client: Client, provider: responses.RequestsMock
) -> None:
    serve(provider, name, lambda cursor: samples.page(*([] if cursor else items(name, 9)), has_more=True))
    found = samples.each(client, name)
    next(found)
    with pytest.raises(PagingError, match=f"GET /{name}: an empty page"):
        next(found)


@every_list
def test_a_repeated_page_is_a_paging_error(name: str, client: Client, provider: responses.RequestsMock) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 9, 8), has_more=True))
    found = samples.each(client, name)
    assert len([next(found), next(found)]) == 2
    with pytest.raises(PagingError, match="ended"):
        next(found)
    assert len(asked) == 2


@every_list
def test_a_circle_of_pages_is_a_paging_error(name: str, client: Client, provider: responses.RequestsMock) -> None:
    nine, eight, seven = items(name, 9, 8, 7)
    following = {None: nine, nine["id"]: eight, eight["id"]: seven, seven["id"]: nine}
    asked = serve(provider, name, lambda cursor: samples.page(following[cursor], has_more=True))
    with pytest.raises(PagingError):
        list(samples.each(client, name))
    assert len(asked) == 4


@every_list
def test_a_page_that_ends_at_its_own_cursor_is_a_paging_error(
    name: str, client: Client, provider: responses.RequestsMock
) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 9), has_more=True))
    with pytest.raises(PagingError):
        next(getattr(client, name).pages(items(name, 9)[0]["id"]))
    assert len(asked) == 1


@every_list
def test_the_last_page_may_repeat_items(name: str, client: Client, provider: responses.RequestsMock) -> None:
    serve(provider, name, lambda cursor: samples.page(*items(name, 9), has_more=not cursor))
    assert len(list(samples.each(client, name))) == 2


@every_list
def test_an_unknown_cursor_is_the_providers_error(name: str, client: Client, provider: responses.RequestsMock) -> None:
    error = {"type": "not_found_error", "code": "resource_not_found", "message": "", "request_id": "r"}
    provider.get(f"{BASE}/{name}", json={"error": error}, status=404)
    with pytest.raises(NotFound):
        list(getattr(client, name).pages("gone_1"))


def test_a_page_that_ends_in_malformed_events_continues_from_the_last_id(
    client: Client, provider: responses.RequestsMock
) -> None:
    nine, eight = items("events", 9, 8)
    answers: dict[str | None, Any] = {
        None: samples.page(nine, {"id": None}, has_more=True),
        nine["id"]: samples.page({"id": None}, eight),
    }
    serve(provider, "events", lambda cursor: answers[cursor])
    assert [json.loads(event.body)["id"] for event in samples.each(client, "events")] == ["evt_9", None, None, "evt_8"]


def test_a_page_of_malformed_events_is_a_paging_error(client: Client, provider: responses.RequestsMock) -> None:
    serve(provider, "events", lambda cursor: samples.page({"id": None}, has_more=True))
    found = samples.each(client, "events")
    next(found)
    with pytest.raises(PagingError, match="no id"):
        next(found)


@pytest.mark.case(96)
@every_list
def test_a_page_that_is_too_large_is_asked_for_with_fewer_items(
    name: str, client: Client, provider: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with more again after ten pages."""
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 100_000)
    listed = [{**item, "more": "x" * (45_000 if number < 3 else 0)} for number, item in enumerate(many(name, 300))]
    asked = serve_all(provider, name, listed)
    assert ids(name, samples.each(client, name)) == [item["id"] for item in listed]
    assert asked == [100, 10, *[1] * 10, *[10] * 10, 100, 100]


@pytest.mark.case(96)
@every_list
def test_an_item_that_is_too_large_has_a_page_of_its_own(
    name: str, client: Client, provider: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 100_000)
    listed = [{**item, "more": "x" * (200_000 if number == 1 else 0)} for number, item in enumerate(many(name, 30))]
    serve_all(provider, name, listed)
    pages = [answer.data for answer in getattr(client, name).pages()]
    assert sum(len(page.items) for page in pages) == 29
    (page,) = (page for page in pages if page.unread is not None)
    assert page.unread.id == listed[1]["id"]
    assert page.unreadable == (f"an item cannot be read ({listed[1]['id']})",)
    with pytest.raises(NoAnswer, match="cannot be read"):
        list(samples.each(client, name))


@pytest.mark.case(96)
@every_list
def test_a_page_that_repeats_an_item_that_is_too_large_is_a_paging_error(
    name: str, client: Client, provider: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 100_000)
    (item,) = many(name, 1)
    provider.get(f"{BASE}/{name}", json=samples.page({**item, "more": "x" * 200_000}, has_more=True))
    with pytest.raises(PagingError):
        list(getattr(client, name).pages())


def many(name: str, count: int) -> list[dict[str, Any]]:
    return items(name, *range(count, 0, -1))


def serve_all(provider: responses.RequestsMock, name: str, listed: list[dict[str, Any]]) -> list[int]:
    """Serve these items by ``limit`` and ``starting_after``; returns the limits that were asked for."""
    asked: list[int] = []

    def callback(request: Any) -> tuple[int, dict[str, str], str]:
        asked.append(int(request.params["limit"]))
        after = request.params.get("starting_after")
        begin = next((number + 1 for number, item in enumerate(listed) if item["id"] == after), 0)
        found = listed[begin : begin + asked[-1]]
        return 200, {}, json.dumps(samples.page(*found, has_more=begin + asked[-1] < len(listed)))

    provider.add_callback("GET", f"{BASE}/{name}", callback)
    return asked
