"""A page with an item that is not JSON: the other items are read; a page that is malformed itself is refused."""

from __future__ import annotations

import json
import time

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


SMALL = b"{}," * 3_000_000 + b"{}"


@pytest.mark.case(106)
@pytest.mark.parametrize(
    "items",
    [
        [b'{"id": "evt_bad", "data": [' + SMALL + b"NaN]}"],
        [b'{"id": "evt_bad", "data": [' + b"[[]]," * 2_000_000 + b"NaN]}"],
        [b'{"id": "evt_bad", "data": [' + b'"",' * 3_000_000 + b"NaN]}"],
        [b'{"id": "evt_bad", "data": "' + rb"\"" * 5_000_000 + b'", "x": NaN}'],
    ],
    ids=["objects", "arrays", "texts", "escapes"],
)
def test_one_malformed_item_among_millions_of_values_costs_little(
    items: list[bytes], client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/events", body=page(*items, GOOD))
    begun = time.process_time()
    found = client.events.list_page().data
    assert [event.body for event in found.items] == [*items, GOOD]
    assert time.process_time() - begun < 4


@pytest.mark.case(106)
@pytest.mark.parametrize("last", [b"{}", NAN], ids=["valid", "malformed"])
def test_a_page_of_millions_of_items_is_refused(last: bytes, client: Client, provider: responses.RequestsMock) -> None:
    provider.get(f"{BASE}/events", body=page(SMALL, last))
    begun = time.process_time()
    with pytest.raises(NoAnswer):
        client.events.list_page()
    assert time.process_time() - begun < 4


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
    assert lenient_json.first_id(body) == found


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


@given(st.binary(max_size=60) | st.text('[]{}",:\\1 adit', max_size=30).map(str.encode))
def test_the_id_of_malformed_bytes_is_a_text_or_nothing(body: bytes) -> None:
    assert lenient_json.first_id(b'{"data": [{' + body)[:1] in b'"'


@given(st.binary(max_size=60) | st.text('[]{}",:\\1 ', max_size=30).map(str.encode))
def test_malformed_bytes_raise_only_value_errors(body: bytes) -> None:
    for split in (lenient_json.items, lenient_json.members):
        try:
            split(body)
        except ValueError:
            continue
        assert body.strip()[:1] in b"[{"
