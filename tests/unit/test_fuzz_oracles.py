"""The fuzzing itself: a broken rule is found, made small, and printed as a test."""

from __future__ import annotations

import hmac
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from django.db import DatabaseError

from payments_integration import schemas, signatures
from payments_integration.exceptions import SignatureError
from payments_integration.inbox import receiving
from payments_integration.projection import rows
from tests.fuzz import deliveries, findings, mutations, targets

pytestmark = pytest.mark.slow

PAYMENT = next(seed for seed in targets.TARGETS["event"].seeds() if b'"fee"' in seed and b'"payment"' in seed)
WITH_NUL = PAYMENT.replace(b'"order-1"', b'"\\u0000"')
BAD_OBJECT = PAYMENT.replace(b"payment.succeeded", b"dispute.x").replace(b'"object": "payment"', b'"object": []')


#: A rule of the app, broken; and the target that must notice.
BROKEN: dict[str, tuple[str, Callable[[], Any]]] = {
    "NUL is stored": ("event", lambda: mock.patch.object(rows, "storable", _as_it_is)),
    "NUL of an answer is stored": ("answer", lambda: mock.patch.object(rows, "storable", _as_it_is)),
    "depth is not checked": ("event", lambda: mock.patch.object(schemas, "check_depth")),
    "nothing is understood": (
        "event",
        lambda: mock.patch.object(schemas, "event_resource", side_effect=schemas.WireError("no")),
    ),
    "object may be anything": ("event", lambda: mock.patch.object(schemas, "event_resource", _unhashable)),
    "an amount is another": ("event", lambda: mock.patch.object(rows, "row_values", _swapped(rows.row_values))),
    "an answered amount is another": (
        "answer",
        lambda: mock.patch.object(rows, "row_values", _swapped(rows.row_values)),
    ),
    "any signature fits": ("signature", lambda: mock.patch.object(hmac, "compare_digest", return_value=True)),
    "no signature fits": ("signature", lambda: mock.patch.object(hmac, "compare_digest", return_value=False)),
    "any time will do": ("signature", lambda: mock.patch.object(signatures, "abs", return_value=0, create=True)),
    "any text is a time": ("signature", lambda: mock.patch.object(signatures, "_TIME", re.compile(".+"))),
}


def _as_it_is(value: Any) -> Any:
    return value


def _unhashable(event: schemas.Event) -> None:
    assert {}.get(event.data["object"]) is None


def _swapped(real: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    def row_values(resource: Any) -> dict[str, Any]:
        values = real(resource)
        if "fee" in values:
            values["amount"] = values["fee"]
        return values

    return row_values


@pytest.mark.parametrize(("target", "broken"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found_within_some_thousand_inputs(target: str, broken: Callable[[], Any]) -> None:
    chosen, random = targets.TARGETS[target], Random(1)
    pool = chosen.seeds()
    inputs = [*pool, *(chosen.mutate(random.choice(pool), random) for _ in range(3000))]
    with broken():
        found = next((data for data in inputs if findings.failure(chosen.check, data)), None)
        assert found is not None
        with mock.patch.object(findings, "MINIMIZE_SECONDS", 0.5):
            finding = findings.examine(target, chosen.check, found)
        assert finding is not None
        assert len(finding.data) <= len(found)
        assert findings.failure(chosen.check, finding.data) is not None
    assert findings.failure(chosen.check, finding.data) is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("broken", "body", "error"),
    [
        (lambda: mock.patch.object(rows, "storable", _as_it_is), WITH_NUL, AssertionError),
        (lambda: mock.patch.object(rows, "row_values", side_effect=AttributeError("oops")), PAYMENT, AssertionError),
        (lambda: mock.patch.object(receiving, "_store"), PAYMENT, AssertionError),
        (lambda: mock.patch.object(schemas, "event_resource", _unhashable), BAD_OBJECT, TypeError),
        (
            lambda: mock.patch.object(schemas, "decode_event", side_effect=DatabaseError("down")),
            PAYMENT,
            AssertionError,
        ),
    ],
    ids=["NUL is stored", "an event is stuck", "nothing is stored", "object may be anything", "503"],
)
def test_a_broken_step_of_a_delivery_is_found(broken: Callable[[], Any], body: bytes, error: type[Exception]) -> None:
    deliveries.deliver(body)
    with broken(), pytest.raises(error):
        deliveries.deliver(body)


def test_a_finding_is_printed_as_a_test(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if b"x" in data:
            raise SignatureError("x")

    finding = findings.examine("signature", check, b"aaaaaaaxbbbbbbb\xff" * 20)
    assert finding is not None
    assert (finding.data, finding.error) == (b"x", "SignatureError: x")
    assert finding.save(tmp_path).read_bytes() == b"x"
    names: dict[str, Any] = {"targets": targets}
    exec(finding.as_test(), names)
    with mock.patch.dict(targets.TARGETS, signature=mock.Mock(check=check)), pytest.raises(SignatureError):
        names[f"test_{finding.name}"]()
    assert findings.examine("signature", check, b"fine") is None


def test_the_same_seed_makes_the_same_inputs() -> None:
    for target in targets.TARGETS.values():
        one, other = (
            [target.mutate(seed, random) for seed in target.seeds() for _ in range(20)]
            for random in (Random(7), Random(7))
        )
        assert one == other
        assert len(set(one)) > len(one) / 2


def test_mutations_make_valid_and_invalid_inputs() -> None:
    random = Random(3)
    states = [targets.event(mutations.mutated_json(PAYMENT, random)).state for _ in range(400)]
    assert 0.1 < states.count("quarantined") / len(states) < 0.9


def test_the_command_reports_findings(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tests.fuzz",
            "--target",
            "event",
            "--seconds",
            "1",
            "--engine",
            "random",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path), "TEST_DATABASE_URL": "sqlite://:memory:"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "random inputs" in done.stdout
    assert "nothing found" in done.stdout
    assert not list(tmp_path.iterdir())
