"""The provider's JSON, strictly: nothing coerced, nothing cut, no other exception."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_integration import wire
from payments_integration.models import MIRRORS
from tests import factories

EVENT = factories.event(factories.payment())


def body(**fields: Any) -> bytes:
    return json.dumps({**EVENT, **fields}).encode()


@pytest.mark.parametrize("kind", wire.RESOURCES)
def test_every_mirrored_field_is_a_field_of_the_struct(kind: str) -> None:
    fields = set(wire.RESOURCES[kind].__struct_fields__) - {"object", "id", "extra", "secret"}
    assert set(MIRRORS[kind].mirrored) == fields
    columns = {field.attname for field in MIRRORS[kind]._meta.concrete_fields}
    assert fields <= columns


@pytest.mark.parametrize("kind", wire.RESOURCES)
def test_columns_hold_whatever_the_struct_allows(kind: str) -> None:
    for field in MIRRORS[kind]._meta.concrete_fields:
        limits = {"Code": 64, "Text": 255, "Id": 255}
        annotation = str(wire.RESOURCES[kind].__annotations__.get(field.attname, ""))
        for name, length in limits.items():
            if annotation.split(" ")[0] == name:
                assert field.max_length == length or field.max_length is None, (kind, field.attname)


def test_times_are_utc_to_the_microsecond() -> None:
    event = wire.decode_event(body(created_at="2026-01-01T12:00:00.1234567+03:00"))
    assert event.created_at == datetime(2026, 1, 1, 9, 0, 0, 123457, tzinfo=UTC)


@pytest.mark.parametrize("levels", [31, 32])
@pytest.mark.case(18)
def test_depth(levels: int) -> None:
    nested: Any = 1
    for _ in range(levels - 1):
        nested = [nested]
    data = {"a": nested}
    if levels <= wire.MAX_DEPTH:
        wire.check_depth(data)
    else:
        with pytest.raises(wire.WireError):
            wire.check_depth(data)


def test_fields_that_are_new_go_to_extra_also_one_named_extra() -> None:
    data = factories.payment(new=1, extra={"x": 2})
    assert wire.parse_resource(data, wire.Payment).extra == {"new": 1, "extra": {"x": 2}}
    assert wire.parse_resource(factories.payment(), wire.Payment).extra == {}


@pytest.mark.parametrize(("type", "kind"), [("payment.x", "payment"), ("dispute.x", None), ("dispute", None)])
def test_which_events_carry_a_mirrored_object(type: str, kind: str | None) -> None:
    data = factories.payment() if kind else {"object": "dispute"}
    resource = wire.event_resource(wire.decode_event(body(type=type, data=data)))
    assert (resource.object if resource else None) == kind


def test_the_same_content_has_one_canonical_form() -> None:
    shuffled = json.dumps(dict(reversed(EVENT.items()))).encode()
    assert wire.canonical(wire.decode_event(shuffled)) == wire.canonical(wire.decode_event(body()))
    assert wire.canonical(wire.decode_event(body(type="payment.x"))) != wire.canonical(wire.decode_event(body()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


@given(raw=st.binary(max_size=60))
def test_bytes_raise_nothing_else(raw: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_event(raw)


@given(field=st.sampled_from(sorted(wire.Payment.__struct_fields__)), value=JSON)
def test_odd_values_raise_nothing_else(field: str, value: Any) -> None:
    raw = json.dumps({**EVENT, "data": {**EVENT["data"], field: value}}).encode()
    with contextlib.suppress(wire.WireError):
        wire.event_resource(wire.decode_event(raw))


def test_error_messages_show_no_value() -> None:
    with pytest.raises(wire.WireError) as error:
        wire.parse_resource(factories.payment(amount="4111111111111111"), wire.Payment)
    assert "4111" not in str(error.value)
