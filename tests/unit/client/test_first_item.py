"""A page with an item that is not JSON: the other items are read; a page that is malformed itself is refused."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import responses
from hypothesis import given, settings, strategies as st

from payments_integration.client import Client, first_item
from payments_integration.exceptions import NoAnswer
from tests.unit.client import samples
from tests.unit.client.samples import BASE

pytestmark = pytest.mark.slow

BAD = {
    "lone surrogate": rb'{"id": "bad_1", "name": "\ud83d"}',
    "NaN": b'{"id": "bad_1", "amount": NaN}',
    "1e999": b'{"id": "bad_1", "amount": 1e999}',
    "deep": b'{"id": "bad_1", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "control character": b'{"id": "bad_1", "name": "\x01"}',
    "NUL": b'{"id": "bad_1", "name": "\x00"}',
    "unknown escape": rb'{"id": "bad_1", "name": "\x"}',
    "not UTF-8": b'{"id": "bad_1", "name": "\xff"}',
    "brackets and commas in text": rb'{"id": "bad_1", "name": "]},\"[{\\", "x": NaN}',
    "an object before the id": b'{"data": {"id": "x", "y": [{}, "]"]}, "id": "bad_1", "x": NaN}',
    "no id": b"undefined",
    "deep before the id": b'{"data": ' + b"[" * 100 + b"]" * 100 + b', "id": "bad_1", "x": NaN}',
}
WITHOUT_ID = ("no id", "deep before the id")
NAN = BAD["NaN"]


def page(*items: bytes, has_more: bytes = b"false") -> bytes:
    return b'{"object": "list", "has_more": ' + has_more + b', "data": [' + b", ".join(items) + b"]}"


def serve(provider: responses.RequestsMock, name: str, sample: dict[str, Any], bad: bytes, place: int) -> list[bytes]:
    """Serve 25 items, newest first and an hour apart, one of which is bad; returns them."""
    newest = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    times = [newest - timedelta(hours=number) for number in range(25)]
    ids = [f"{sample['id']}_{number}" for number in range(25)]
    texts = [
        json.dumps({**sample, "id": item_id, "created_at": at.isoformat()}).encode()
        for item_id, at in zip(ids, times, strict=True)
    ]
    ids[place], texts[place] = "bad_1", bad

    def answer(request: Any) -> tuple[int, dict[str, str], bytes]:
        after, size = request.params.get("starting_after"), int(request.params["limit"])
        begin, end = (request.params.get(f"created_{side}") for side in ("from", "to"))
        rest = [
            text
            for text, at in list(zip(texts, times, strict=True))[ids.index(after) + 1 if after else 0 :]
            if (not begin or at >= datetime.fromisoformat(begin)) and (not end or at <= datetime.fromisoformat(end))
        ]
        return 200, {}, page(*rest[:size], has_more=b"true" if rest[size:] else b"false")

    provider.add_callback("GET", f"{BASE}/{name}", answer)
    return texts


@pytest.mark.promise(4)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("place", [0, 12, 24])
def test_an_event_that_is_not_json_does_not_hide_the_others(
    bad: bytes, place: int, client: Client, provider: responses.RequestsMock
) -> None:
    items = serve(provider, "events", samples.EVENT, bad, place)
    pages = [answer.data for answer in client.events.pages(created_from=datetime(2026, 2, 1, tzinfo=UTC))]
    # Items of the second at which a list is narrowed come twice.
    assert list(dict.fromkeys(event.body for page in pages for event in page.items)) == items
    assert not any(page.unread for page in pages)
    assert not pages[-1].has_more


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", ["payments", "payouts"])
def test_an_object_that_is_not_json_does_not_hide_the_others(
    name: str, bad: bytes, client: Client, provider: responses.RequestsMock
) -> None:
    """But older ones, if its id cannot be read and the list cannot be narrowed by time."""
    sample = {"payments": samples.PAYMENT, "payouts": samples.PAYOUT}[name]
    serve(provider, name, sample, bad, 12)
    pages = [answer.data for answer in getattr(client, name).pages()]
    ends_there = name == "payouts" and bad in [BAD[case] for case in WITHOUT_ID]
    assert len({item.id for page in pages for item in page.items}) == (12 if ends_there else 24)
    assert len([problem for page in pages for problem in page.unreadable]) == 1
    with pytest.raises(NoAnswer):
        list(samples.each(client, name))


def test_events_of_the_same_second_that_an_item_without_an_id_hides_are_named(
    client: Client, provider: responses.RequestsMock
) -> None:
    def answer(request: Any) -> tuple[int, dict[str, str], bytes]:
        begin, end = (datetime.fromisoformat(request.params[f"created_{side}"]) for side in ("from", "to"))
        there = begin <= samples.SINCE <= end
        return 200, {}, page(b"undefined", has_more=b"true") if there else page()

    provider.add_callback("GET", f"{BASE}/events", answer)
    day = timedelta(days=1)
    pages = [
        answer.data for answer in client.events.pages(created_from=samples.SINCE - day, created_to=samples.SINCE + day)
    ]
    (found,) = (page for page in pages if page.items)
    assert [event.body for event in found.items] == [b"undefined"]
    half = timedelta(seconds=0.5)
    assert found.unread is not None
    assert found.unread.span == (samples.SINCE - half, samples.SINCE + half)


@pytest.mark.parametrize(
    "body",
    [
        page(NAN)[:-1],
        page(b'{"id": "evt_1"}')[:-1] + b', "took": NaN, "links": ["x"]}',
        page(NAN)[:-2],
        page(NAN) + b"x",
        page(NAN).replace(b"]", b"}"),
        page(NAN).replace(b'"list"', b"list"),
        page(NAN).replace(b'"list"', b'"\\ud800"'),
        page(NAN).replace(b'"list"', b'"payments"'),
        page(NAN, has_more=b"1"),
        page(NAN, has_more=b"null"),
        page(NAN).replace(b'"has_more": false, ', b""),
        page(NAN).replace(b'"data": [', b'"data": {"a": [').replace(b"]}", b"]}}"),
        page(NAN).replace(b'"data"', b'"dat"'),
        page(NAN).replace(b'"data"', b'"more": 01, "data"'),
        page(NAN).replace(b'"data"', b'more, "data"'),
        b"[" + page(NAN) + b"]",
        b"NaN",
        b"<html>{}</html>",
        b'<html><script>x = {"data": [1]}</script></html>',
        b'{"data": []',
        b"",
    ],
)
def test_a_page_that_is_malformed_around_its_items_is_no_answer(
    body: bytes, client: Client, provider: responses.RequestsMock
) -> None:
    """Nothing of it is taken for an item, and it is not asked for again."""
    provider.get(re.compile(f"{BASE}/events.*limit=100"), body=body)
    with pytest.raises(NoAnswer) as caught:
        list(client.events.pages())
    assert caught.value.__context__ is None
    assert len(provider.calls) == 1


SMALL = b"{}," * 3_000_000 + b"{}"


@pytest.mark.case(106)
@pytest.mark.parametrize(
    "item",
    [
        b'{"data": [' + SMALL + b'NaN], "id": "bad_1"}',
        b'{"data": [' + b"[[]]," * 2_000_000 + b'NaN], "id": "bad_1"}',
        b'{"data": [' + b'"",' * 3_000_000 + b'NaN], "id": "bad_1"}',
        b'{"data": "' + rb"\"" * 5_000_000 + b'", "x": NaN, "id": "bad_1"}',
    ],
    ids=["objects", "arrays", "texts", "escapes"],
)
def test_a_malformed_item_of_millions_of_values_costs_little(
    item: bytes, client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/events", body=page(item))
    begun = time.process_time()
    (answer,) = client.events.pages()
    assert [event.body for event in answer.data.items] == [item]
    assert answer.data.cursor == "bad_1"
    assert time.process_time() - begun < 4


@pytest.mark.case(106)
def test_a_page_of_millions_of_items_is_refused(client: Client, provider: responses.RequestsMock) -> None:
    provider.get(f"{BASE}/events", body=page(SMALL))
    begun = time.process_time()
    with pytest.raises(NoAnswer):
        list(client.events.pages())
    assert time.process_time() - begun < 4


GOOD = json.dumps({**samples.EVENT, "id": "evt_good"}).encode()


@pytest.mark.case(96)
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (page(GOOD, NAN), b'"evt_good"'),
        (page(GOOD)[:80], b'"evt_good"'),
        (page(b'{"data": {"id": "pay_1", "m": [1, "]}"]}, "id": "evt_1", "more": "'), b'"evt_1"'),
        (b' {"data" :\n[ { "id" : "evt_1"', b'"evt_1"'),
        (b'{"data": [{"id": "evt_', b""),
        (b'{"data": [{"data": {"id": "pay_1", "more": "', b""),
        (b'{"data": [{"data": "x", "x" "id": "evt_1"', b""),
        (b'{"data": [1, {"id": "evt_1"}', b""),
        (b'{"data": [{"id": 1}', b""),
        (b'{"data": {"id": "evt_1"}', b""),
        (b'{"other": [{"id": "evt_1"}]', b""),
        (b'[{"id": "evt_1"}]', b""),
        (b"", b""),
        (b'{"data": [' + b'{"a": ' * 100_000, b""),
    ],
)
def test_the_id_of_the_first_item_is_found_in_a_part(body: bytes, found: bytes) -> None:
    assert first_item.first_id(body) == found


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(value=values, indent=st.sampled_from([None, 1]), ascii_only=st.booleans(), is_first=st.booleans())
def test_one_item_is_cut_out_of_its_page(value: object, indent: int | None, ascii_only: bool, is_first: bool) -> None:
    members = [("data", [value]), ("object", "list"), ("has_more", True)]
    written = json.dumps(dict(members if is_first else reversed(members)), indent=indent, ensure_ascii=ascii_only)
    item, rest = first_item.cut(written.encode("utf-8", "surrogatepass"))
    assert json.dumps(json.loads(item)) == json.dumps(value)
    assert json.loads(rest) == {"object": "list", "has_more": True, "data": []}


@given(st.binary(max_size=60) | st.text('[]{}",:\\1 adit', max_size=30).map(str.encode))
def test_malformed_bytes_raise_nothing(body: bytes) -> None:
    assert first_item.first_id(b'{"data": [{' + body)[:1] in b'"'
    for text in (body, b'{"data": [' + body):
        item, rest = first_item.cut(text)
        assert len(item) + len(rest) <= len(text)
