"""Lists read page after page, and stop when the provider's pages do not advance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import responses

from payments_integration.client import Client
from payments_integration.exceptions import NotFound, PagingError
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
    assert ids(name, resource.list()) == [item["id"] for item in first + second + third]
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
    found = getattr(client, name).list()
    assert asked == []
    next(found)
    assert asked == [None]


@every_list
def test_filters_go_with_every_page(name: str, client: Client, provider: responses.RequestsMock) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 8 if cursor else 9), has_more=not cursor))
    filters = {"payments": "status", "payouts": "status", "refunds": "payment_id", "events": "type"}
    list(getattr(client, name).list(**{filters[name]: "x"}))
    assert len(asked) == 2
    assert all(f"{filters[name]}=x" in str(call.request.url) for call in provider.calls)


@every_list
def test_an_empty_list_has_no_items(name: str, client: Client, provider: responses.RequestsMock) -> None:
    serve(provider, name, lambda cursor: samples.page())
    assert list(getattr(client, name).list()) == []


@every_list
def test_an_empty_page_with_more_is_a_paging_error(
    name: str, client: Client, provider: responses.RequestsMock
) -> None:
    serve(provider, name, lambda cursor: samples.page(*([] if cursor else items(name, 9)), has_more=True))
    found = getattr(client, name).list()
    next(found)
    with pytest.raises(PagingError, match=f"GET /{name}: an empty page"):
        next(found)


@every_list
def test_a_repeated_page_is_a_paging_error(name: str, client: Client, provider: responses.RequestsMock) -> None:
    asked = serve(provider, name, lambda cursor: samples.page(*items(name, 9, 8), has_more=True))
    found = getattr(client, name).list()
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
        list(getattr(client, name).list())
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
    assert len(list(getattr(client, name).list())) == 2


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
    assert [json.loads(event.body)["id"] for event in client.events.list()] == ["evt_9", None, None, "evt_8"]


def test_a_page_of_malformed_events_is_a_paging_error(client: Client, provider: responses.RequestsMock) -> None:
    serve(provider, "events", lambda cursor: samples.page({"id": None}, has_more=True))
    found = client.events.list()
    next(found)
    with pytest.raises(PagingError, match="no id"):
        next(found)
