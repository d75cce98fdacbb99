"""What is fuzzed: each target takes bytes and raises where something does not hold.

An AssertionError is a broken rule; any other exception is undocumented.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from requests.structures import CaseInsensitiveDict

from payments_integration import schemas
from payments_integration.client import answers, errors, requestor
from payments_integration.client.answers import Reply
from payments_integration.enums import ID_PREFIXES
from payments_integration.exceptions import NoAnswer, ProviderError, SignatureError
from payments_integration.inbox import receiving
from payments_integration.models import Event, EventState, StateBy
from payments_integration.projection import rows
from payments_integration.sandbox.protocol import EVENT_TYPES
from payments_integration.signatures import verify
from tests.fuzz import deliveries, mutations, oracles

CORPUS = Path(__file__).parent / "corpus"

NOW = 1_700_000_000
SECRETS = ("whsec_first", "whsec_second")
SIGNED = b'{"id": "evt_1", "amount": 10}'
_OLD = NOW - 301
#: What ``<…>`` in a header of the corpus stands for.
PLACES = {
    "<t>": str(NOW),
    "<T>": str(NOW).translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
    "<old>": str(_OLD),
    "<v1>": oracles.digest(SECRETS[0], str(NOW), SIGNED),
    "<V1>": oracles.digest(SECRETS[0], str(NOW), SIGNED).upper(),
    "<w1>": oracles.digest(SECRETS[1], str(NOW), SIGNED),
    "<other>": oracles.digest("whsec_other", str(NOW), SIGNED),
    "<v1 of old>": oracles.digest(SECRETS[0], str(_OLD), SIGNED),
}


def signature(data: bytes) -> bool:
    """``data``: a header in UTF-8 (or any bytes) with ``<…>`` for what only the signer knows. Whether it is valid."""
    # As a server written in Python hands it on, and as somebody else may.
    for text in dict.fromkeys((data.decode("latin-1"), data.decode("utf-8", "surrogateescape"))):
        header = _filled(text)
        try:
            verify(SIGNED, header, secrets=SECRETS, now=NOW)
        except SignatureError:
            assert not oracles.must_accept(SIGNED, header, SECRETS, NOW), "a header as the spec has it is refused"
            accepted = False
        else:
            assert oracles.may_accept(SIGNED, header, SECRETS, NOW), "accepted without a signature that fits"
            accepted = True
    return accepted


def _filled(header: str) -> str:
    for place, value in PLACES.items():
        header = header.replace(place, value)
    return header


def event(data: bytes) -> Event:
    """``data``: the body of a delivery. The row that would be stored."""
    row = receiving.read("default", data, source="webhook")
    assert bytes(row.body or b"") == data
    _fits(row)
    try:
        decoded = schemas.decode_event(data)
        resource = schemas.event_resource(decoded)
    except schemas.WireError:
        decoded, resource = None, None
    if row.state == EventState.QUARANTINED:
        assert row.error, "in quarantine for no reason"
        assert not oracles.must_understand(data), f"an event as the spec has it is in quarantine: {row.error}"
        return row
    assert decoded is not None
    document = oracles.reading(data)
    assert document["object"] == "event"
    assert document["id"] == row.id
    assert oracles.stored(document["type"]) == row.type
    assert oracles.same_time(row.created_at, document["created_at"])
    kind, prefix = document["data"].get("object"), document["type"].split(".")[0]
    assert (resource is not None) == any(kind == name for name in oracles.KINDS)
    assert kind == prefix or document["type"] not in EVENT_TYPES
    if resource is not None:
        assert kind == row.object_kind
        _reads_as(resource, document["data"])
    schemas.decode_event(schemas.canonical(decoded))
    return row


def _reads_as(resource: schemas.AnyResource, data: dict[str, Any] | None) -> None:
    """The mirror row of an object fits every database and says what the provider said."""
    row = _row(resource)
    _fits(row)
    if data is None:
        return
    assert rows.object_id_of(resource) == data["currency" if isinstance(resource, schemas.Balance) else "id"]
    assert oracles.misread(row, data) == []


def _fits(row: Any) -> None:
    found = oracles.problems(row)
    assert not found, f"a row that a database would refuse: {found}"


Reader = Callable[[Reply], answers.Answer[Any]]


def _whole(pages: Reader, reply: Reply) -> answers.Answer[Any]:
    return answers.whole(pages(reply))


def _readers() -> Mapping[str, Reader]:
    readers: dict[str, Reader] = {
        "events.list": lambda reply: answers.event_page(reply, 100),
        "payment_methods.list": answers.payment_methods,
        "balances.list": lambda reply: answers.resources(reply, schemas.Balance, "balance"),
        "webhook_endpoints.list": lambda reply: answers.resources(reply, schemas.WebhookEndpoint, "webhook_endpoint"),
    }
    for kind, struct in schemas.RESOURCES.items():
        if kind != "balance":
            readers[f"{kind}s.create"] = partial(answers.resource, struct=struct, kind=kind)
            readers[f"{kind}s.get"] = partial(
                answers.resource, struct=struct, kind=kind, expected_id=f"{ID_PREFIXES[kind]}1"
            )
            pages = partial(answers.page, struct=struct, kind=kind, limit=100)
            readers[f"{kind}s.list"] = readers.get(f"{kind}s.list") or partial(_whole, pages)
            readers[f"{kind}s.pages"] = pages
    return readers


READERS = _readers()


def answer(data: bytes) -> answers.Answer[Any] | None:
    """``data``: ``<reader> <status>``, headers, an empty line, a body. What was read; None where it was refused."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    name, _, status = first.partition(" ")
    if name not in READERS:
        name = "payments.get"
    pairs = [line.partition(": ") for line in lines]
    reply = Reply(
        method="GET",
        path="/x",
        status_code=int(status) if status.isascii() and status.isdigit() and len(status) == 3 else 200,
        headers=CaseInsensitiveDict({key: value for key, _, value in pairs}),
        body=body,
        problem="",
        duration=0.1,
    )
    assert reply.request_id.isascii()
    assert errors.MIN_RETRY_AFTER <= errors.retry_after(reply) <= errors.MAX_WAIT
    requestor.RateLimiter(lambda: 0.0).update("read", reply.headers)
    if not 200 <= reply.status_code < 300:
        _assert_printable(errors.error_of(reply))
        return None
    try:
        read = READERS[name](reply)
    except NoAnswer as error:
        _assert_printable(error)
        return None
    found = read.data.items if isinstance(read.data, answers.PageOf) else read.data
    for item in found if isinstance(found, list) else [found]:
        if isinstance(item, answers.RawEvent):
            event(item.body)
        elif isinstance(item, schemas.PaymentMethod):
            assert len(item.code) <= 255
        else:
            listed = name.endswith((".list", ".pages"))
            _reads_as(item, _listed_object(body, item) if listed else oracles.reading(body))
    return read


def _listed_object(body: bytes, item: Any) -> dict[str, Any] | None:
    """The object of a list that an item was read from, found by another reader; None where that one is not able to."""
    name = "currency" if isinstance(item, schemas.Balance) else "id"
    try:
        # Kinder than ours: what stands beside the item may be no text and no JSON.
        found = json.loads(body.decode("utf-8", "replace"), strict=False)["data"]
    except (ValueError, RecursionError):
        return None
    listed = [entry for entry in found if isinstance(entry, dict) and entry.get(name) == getattr(item, name)]
    # Of several under one id the right one is among them.
    return next((entry for entry in listed if not oracles.misread(_row(item), entry)), listed[0])


def _row(item: Any) -> Any:
    return rows.new_row("default", item, rows.row_values(item), at=datetime(2026, 1, 1, tzinfo=UTC), by=StateBy.EVENT)


def _assert_printable(error: Exception) -> None:
    assert isinstance(error, ProviderError | NoAnswer)
    text = f"{error}{error!r}"
    assert text.isprintable(), "an error that cannot be logged on one line"
    assert len(text) < 4_000


@dataclass(frozen=True)
class Target:
    """Something to fuzz: what to check, where to begin, how to change it."""

    name: str
    check: Callable[[bytes], Any]
    mutate: Callable[[bytes, Random], bytes]
    #: The folder of the corpus.
    corpus: str
    #: To be called once before the first check, outside of pytest.
    prepare: Callable[[], None] = lambda: None

    def seeds(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((CORPUS / self.corpus).iterdir())]


TARGETS = {
    target.name: target
    for target in (
        Target("signature", signature, mutations.mutated_header, "signature"),
        Target("event", event, mutations.mutated_json, "event"),
        Target("answer", answer, mutations.mutated_answer, "answer"),
        Target("delivery", deliveries.deliver, mutations.mutated_json, "event", deliveries.prepare),
    )
}
