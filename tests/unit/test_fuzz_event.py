"""Bodies of deliveries, bad in every way that we could think of: on each database that the suite runs on."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tests import factories
from tests.fuzz import deliveries, mutations, targets

pytestmark = pytest.mark.slow

SEEDS = targets.TARGETS["event"].seeds()
EVENT = json.dumps(factories.event(factories.payment())).encode()

mutated = st.builds(mutations.mutated_json, st.sampled_from(SEEDS), st.integers(0, 2**32).map(Random))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
documents = json_values.map(lambda value: json.dumps(value).encode())
#: Each stands in a batch with the others.
NAMED = [
    EVENT.replace(b"10000", token)
    for token in (b"NaN", b"1e999", b"9" * 5000, b"true", b"1.0", b'"1"', b"null", b"-9223372036854775809")
] + [
    EVENT[:-2] + b', "metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    EVENT[:-2] + b', "metadata": ' + b'{"a":' * 31 + b"1" + b"}" * 31 + b"}}",
    EVENT.replace(b"cl_card", rb"\ud800"),
    EVENT.replace(b"cl_card", rb"\u0000"),
    EVENT.replace(b"cl_card", b"x" * 256),
    b"\xef\xbb\xbf" + EVENT,
    EVENT.decode().encode("utf-16"),
    b"[]",
    b"",
]


@settings(max_examples=400, deadline=None)
@given(body=mutated)
def test_every_changed_body_becomes_a_row(body: bytes) -> None:
    """Without a database: what would be stored fits each of them, and says what the provider said."""
    targets.event(body)


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=60) | documents)
def test_any_bytes_that_are_no_event_are_quarantined(body: bytes) -> None:
    assert targets.event(body).state == "quarantined"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.django_db
@given(bodies=st.lists(mutated | st.binary(max_size=40) | documents, min_size=1, max_size=6))
@example(bodies=NAMED)
def test_deliveries_break_no_rule_from_webhook_to_mirror(bodies: list[bytes]) -> None:
    deliveries.deliver(*bodies)


def test_the_seeds_are_valid_events() -> None:
    """The targets would notice nothing if everything went to quarantine."""
    assert [targets.event(seed).state for seed in SEEDS] == ["pending"] * len(SEEDS)
