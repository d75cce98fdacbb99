"""The provider's JSON is read strictly: no value is converted or cut, and every error is a WireError."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from payments_integration import schemas
from payments_integration.models import MIRRORS
from tests import factories

EVENT = factories.event(factories.payment())


def body(**fields: Any) -> bytes:
    return json.dumps({**EVENT, **fields}).encode()


@pytest.mark.parametrize("kind", schemas.RESOURCES)
def test_every_field_of_a_struct_is_mirrored_but_these(kind: str) -> None:
    exceptions = {"balance": {"object", "extra"}, "webhook_endpoint": {"id", "object", "extra", "secret"}}
    mirrored = MIRRORS[kind].mirrored
    assert set(schemas.RESOURCES[kind].__struct_fields__) - set(mirrored) == exceptions.get(
        kind, {"id", "object", "extra"}
    )
    assert {*mirrored, "extra"} <= {field.attname for field in MIRRORS[kind]._meta.concrete_fields}


@pytest.mark.parametrize("kind", schemas.RESOURCES)
def test_a_column_holds_every_value_that_its_struct_allows(kind: str) -> None:
    for field in MIRRORS[kind]._meta.concrete_fields:
        limits = {"Code": 64, "Text": 255, "Id": 255}
        annotation = str(schemas.RESOURCES[kind].__annotations__.get(field.attname, ""))
        for name, length in limits.items():
            if annotation.split(" ")[0] == name:
                assert field.max_length == length or field.max_length is None, (kind, field.attname)


def test_times_are_utc_to_the_microsecond() -> None:
    event = schemas.decode_event(body(created_at="2026-01-01T12:00:00.1234567+03:00"))
    assert event.created_at == datetime(2026, 1, 1, 9, 0, 0, 123457, tzinfo=UTC)


def test_addresses_and_reasons_may_have_any_length() -> None:
    long = "x" * 100_000
    found = schemas.parse_resource(factories.payment(checkout_url=long, failure_reason=long), schemas.Payment)
    assert (found.checkout_url, found.failure_reason) == (long, long)


@pytest.mark.parametrize("levels", [31, 32])
@pytest.mark.case(18)
def test_json_nested_too_deeply_is_refused(levels: int) -> None:
    nested: Any = 1
    for _ in range(levels - 1):
        nested = [nested]
    data = {"a": nested}
    if levels <= schemas.MAX_DEPTH:
        schemas.check_depth(data)
    else:
        with pytest.raises(schemas.WireError):
            schemas.check_depth(data)


def test_unknown_fields_go_to_extra_even_one_named_extra() -> None:
    data = factories.payment(new=1, extra={"x": 2})
    assert schemas.parse_resource(data, schemas.Payment).extra == {"new": 1, "extra": {"x": 2}}
    assert schemas.parse_resource(factories.payment(), schemas.Payment).extra == {}


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("payment.x", "payment"), ("refund.x", "payment"), ("dispute.x", "payment"), ("dispute.x", None),
        ("payment.dispute_opened", None), ("dispute", None),
    ],
)  # fmt: skip
def test_the_data_of_an_event_names_the_mirrored_object_that_it_carries(type: str, kind: str | None) -> None:
    data = factories.payment() if kind else {"object": "dispute"}
    resource = schemas.event_resource(schemas.decode_event(body(type=type, data=data)))
    assert (resource.object if resource else None) == kind


def test_equal_events_have_one_canonical_form() -> None:
    shuffled = json.dumps(dict(reversed(EVENT.items()))).encode()
    assert schemas.canonical(schemas.decode_event(shuffled)) == schemas.canonical(schemas.decode_event(body()))
    null = {**EVENT, "data": {**EVENT["data"], "failure_reason": None}}
    left_out = {**EVENT, "data": {name: value for name, value in null["data"].items() if value is not None}}
    found = {schemas.canonical(schemas.decode_event(json.dumps(each).encode())) for each in (null, left_out)}
    assert len(found) == 1
    assert schemas.canonical(schemas.decode_event(body(type="payment.x"))) != schemas.canonical(
        schemas.decode_event(body())
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


@given(raw=st.binary(max_size=60))
def test_malformed_bytes_raise_only_wire_errors(raw: bytes) -> None:
    with pytest.raises(schemas.WireError):
        schemas.decode_event(raw)


@given(field=st.sampled_from(sorted(schemas.Payment.__struct_fields__)), value=JSON)
def test_odd_values_raise_only_wire_errors(field: str, value: Any) -> None:
    raw = json.dumps({**EVENT, "data": {**EVENT["data"], field: value}}).encode()
    with contextlib.suppress(schemas.WireError):
        schemas.event_resource(schemas.decode_event(raw))


def test_a_wire_error_shows_no_value() -> None:
    with pytest.raises(schemas.WireError) as error:
        schemas.parse_resource(factories.payment(amount="4111111111111111"), schemas.Payment)
    assert "4111" not in str(error.value)


@pytest.mark.case(146)
def test_threads_may_parse_the_first_objects_of_a_process() -> None:
    """msgspec crashed in a third of such processes while each struct's table of types was filled at its first use."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.unit.first_use", "200"],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.stdout == "0\n"
