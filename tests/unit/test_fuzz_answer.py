"""The provider's answers are foreign bytes as well: read right, or NoAnswer, or the envelope's error."""

from __future__ import annotations

from random import Random
from unittest import mock

import pytest
import responses
from hypothesis import HealthCheck, given, settings, strategies as st

from payments_integration import conf, projection, schemas
from payments_integration.client import Client
from payments_integration.exceptions import NoAnswer, PagingError, ProviderError
from payments_integration.models import MIRRORS, Event, deletion_allowed
from tests.fuzz import mutations, oracles, targets
from tests.unit.client.samples import API_KEY, BASE, CASES, Case

SEEDS = targets.TARGETS["answer"].seeds()
mutated = st.builds(mutations.mutated_answer, st.sampled_from(SEEDS), st.integers(0, 2**32).map(Random))


@settings(max_examples=300, deadline=None)
@given(answer=mutated)
def test_a_changed_valid_answer_breaks_no_rule(answer: bytes) -> None:
    targets.answer(answer)


@settings(max_examples=150, deadline=None)
@given(reader=st.sampled_from(sorted(targets.READERS)), status=st.integers(100, 999), body=st.binary(max_size=60))
def test_any_bytes_as_an_answer_break_no_rule(reader: str, status: int, body: bytes) -> None:
    assert targets.answer(f"{reader} {status}\n\n".encode() + body) is None


def test_an_unknown_reader_reads_an_object() -> None:
    """Its name decides nothing further: mutations change it as they change everything else."""
    payment = next(seed for seed in SEEDS if seed.startswith(b"payments.get 200"))
    _, _, rest = payment.partition(b"\n")
    read = targets.answer(b".list 200\n" + rest)
    assert read is not None
    assert isinstance(read.data, schemas.Payment)


#: As http.client takes them from the wire.
headers = st.dictionaries(
    st.sampled_from(["Date", "Retry-After", "X-Request-Id", "RateLimit-Reset", "RateLimit-Remaining", "Location"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f\x85"), max_size=40),
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(
    case=st.sampled_from(CASES),
    status=st.sampled_from([200, 200, 200, 201, 204, 302, 400, 404, 409, 422, 429, 500, 503]),
    body=st.binary(max_size=60) | mutated.map(lambda answer: answer.partition(b"\n\n")[2]),
    headers=headers,
)
def test_every_call_raises_only_its_documented_errors(
    case: Case, status: int, body: bytes, headers: dict[str, str]
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    client = Client(conf.Account("default", "https://pay.example", API_KEY), sleep=sleep, monotonic=lambda: now[0])
    with responses.RequestsMock(assert_all_requests_are_fired=False) as provider:
        provider.add(case.method, BASE + case.path, body=body, status=status, headers=headers)
        shown = ""
        try:
            case.call(client)
        except (ProviderError, NoAnswer, PagingError) as error:
            shown = f"{error!s}{error!r}"
    assert API_KEY not in shown
    assert now[0] <= 60


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.django_db
@given(answers=st.lists(mutated, min_size=1, max_size=6))
def test_every_answer_that_is_read_can_be_mirrored(answers: list[bytes]) -> None:
    """Each answer to the mirror: written or refused, and never a row that another database would refuse."""
    with deletion_allowed():
        for model in MIRRORS.values():
            model._default_manager.all().delete()
    Event.objects.all().delete()
    for data in answers:
        read = targets.answer(data)
        if read is None:
            continue
        found = getattr(read.data, "items", read.data)
        for item in found if isinstance(found, list) else [found]:
            if not isinstance(item, schemas.AnyResource):
                continue
            before = projection.snapshot(item.object, "default", _id(item))
            for account in ("default", "second"):
                at = read.answered_at
                if account == "second" and not isinstance(item, schemas.Balance):
                    with pytest.raises(schemas.WireError, match="the object belongs to another account"):
                        projection.write_answer(account, item, answered_at=at, duration=0.1, before=before)
                    continue
                row = projection.write_answer(account, item, answered_at=at, duration=0.1, before=before)
                row.refresh_from_db()
                assert oracles.problems(row) == []
                assert projection.differences(row, item) == {}


def _id(item: schemas.AnyResource) -> str:
    return item.currency if isinstance(item, schemas.Balance) else item.id


@pytest.mark.parametrize("seed", SEEDS)
def test_the_seeds_are_valid_answers(seed: bytes) -> None:
    assert (targets.answer(seed) is not None) == (b" 20" in seed.partition(b"\n")[0])


def test_a_reader_that_raises_anything_else_is_noticed() -> None:
    with mock.patch.object(schemas, "decode_object", side_effect=TypeError("unhashable")), pytest.raises(TypeError):
        targets.answer(SEEDS[0])
