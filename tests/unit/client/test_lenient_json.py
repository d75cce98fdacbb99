"""A page with an item that is not JSON: the other items are read; a page that is malformed itself is refused."""

from __future__ import annotations

import json

import pytest
import responses
from hypothesis import given, settings, strategies as st

from payments_integration.client import Client, lenient_json
from payments_integration.exceptions import NoAnswer
from tests.unit.client import samples
from tests.unit.client.samples import BASE

GOOD = json.dumps({**samples.EVENT, "id": "evt_good"}).encode()
BAD = {
    "lone surrogate": rb'{"id": "evt_bad", "name": "\ud83d"}',
    "NaN": b'{"id": "evt_bad", "amount": NaN}',
    "1e999": b'{"id": "evt_bad", "amount": 1e999}',
    "deep": b'{"id": "evt_bad", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "control character": b'{"id": "evt_bad", "name": "\x01"}',
    "NUL": b'{"id": "evt_bad", "name": "\x00"}',
    "unknown escape": rb'{"id": "evt_bad", "name": "\x"}',
    "not UTF-8": b'{"id": "evt_bad", "name": "\xff"}',
    "words": b"undefined",
    "brackets and commas in text": rb'{"id": "evt_bad", "name": "]},\"[{\\", "x": NaN}',
}


def page(*items: bytes, has_more: bytes = b"false") -> bytes:
    return b'{"object": "list", "has_more": ' + has_more + b', "data": [' + b", ".join(items) + b"]}"


@pytest.mark.promise(4)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_event_that_is_not_json_does_not_hide_the_others(
    bad: bytes, place: int, client: Client, provider: responses.RequestsMock
) -> None:
    items = [GOOD, GOOD.replace(b"evt_good", b"evt_2")]
    items.insert(place, bad)
    provider.get(f"{BASE}/events", body=page(*items, has_more=b"true"))
    found = client.events.list_page().data
    assert [event.body for event in found.items] == items
    assert found.has_more
    assert found.cursor in ({"evt_2", "evt_bad"} if place == 2 else {"evt_2"})


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_object_that_is_not_json_does_not_hide_the_others(
    bad: bytes, client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/payments", body=page(bad, json.dumps(samples.PAYMENT).encode()))
    (answer,) = client.payments.pages()
    assert [item.id for item in answer.data.items] == [samples.PAYMENT["id"]]
    assert len(answer.data.unreadable) == 1
    with pytest.raises(NoAnswer):
        client.payments.list_page()


NAN = BAD["NaN"]


@pytest.mark.parametrize(
    "body",
    [
        page(NAN)[:-1],
        page(NAN)[:-2],
        page(NAN) + b"x",
        page(NAN) + page(NAN),
        page(NAN).replace(b"]", b"}"),
        page(NAN, b"}"),
        page(NAN, b'{"id": "'),
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
    ],
)
def test_malformed_json_around_the_items_is_no_answer(
    body: bytes, client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/events", body=body)
    with pytest.raises(NoAnswer) as caught:
        client.events.list_page()
    assert caught.value.__context__ is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(listed=st.lists(values, max_size=5), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_the_items_of_an_array_are_cut_out(listed: list[object], indent: int | None, ascii_only: bool) -> None:
    written = json.dumps(listed, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    pieces = [json.loads(piece) for piece in lenient_json.items(written)]
    assert json.dumps(pieces) == json.dumps(listed)


@settings(max_examples=100, deadline=None)
@given(members=st.dictionaries(st.text('ab\\"[]{},: ', max_size=6), values, max_size=5))
def test_the_members_of_an_object_are_cut_out(members: dict[str, object]) -> None:
    found = lenient_json.members(json.dumps(members).encode())
    read = {json.loads(f'"{name}"'): json.loads(value) for name, value in found.items()}
    assert json.dumps(read) == json.dumps(members)


@given(st.binary(max_size=60) | st.text('[]{}",:\\1 ', max_size=30).map(str.encode))
def test_malformed_bytes_raise_only_value_errors(body: bytes) -> None:
    for split in (lenient_json.items, lenient_json.members):
        try:
            split(body)
        except ValueError:
            continue
        assert body.strip()[:1] in b"[{"
