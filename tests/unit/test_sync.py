"""Reading the refunds of one payment from the provider into the mirror."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import sync
from payments_integration.client import PageOf
from payments_integration.exceptions import NoAnswer
from payments_integration.models import Refund
from tests.fake_provider import Fake, answer, refund, timeout


def pages_of(fake: Fake, monkeypatch: pytest.MonkeyPatch, *pages: tuple[list[Any], tuple[str, ...]]) -> list[Any]:
    """Have the provider list these pages: items, and errors of unreadable items. Returns the filters it is asked."""
    asked: list[Any] = []

    def listed(**filters: Any) -> Any:
        asked.append(filters)
        for number, (items, unreadable) in enumerate(pages, start=1):
            has_more = number < len(pages)
            yield answer(PageOf(items=items, has_more=has_more, cursor=None, unreadable=unreadable))

    monkeypatch.setattr(fake.refunds, "pages", listed, raising=False)
    return asked


def test_every_page_is_read_and_unknown_refunds_are_inserted(
    fake: Fake, mirrored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    items = [refund(payment_id="pay_1", created_at=now - timedelta(minutes=number)) for number in range(3)]
    mirrored(items[2], known=False)
    asked = pages_of(fake, monkeypatch, (items[:1], ()), (items[1:], ()))
    sync.read_refunds("default", "pay_1")
    assert asked == [{"payment_id": "pay_1"}]
    assert set(Refund.objects.values_list("pk", "account")) == {(item.id, "default") for item in items}


def test_known_refunds_are_brought_up_to_date(fake: Fake, mirrored: Any) -> None:
    row = mirrored(refund(payment_id="pay_1", status="processing"))
    fake.objects[row.pk].status = "succeeded"
    sync.read_refunds("default", "pay_1")
    row.refresh_from_db()
    assert row.status == "succeeded"


def test_a_listed_refund_of_another_payment_is_ignored(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    pages_of(fake, monkeypatch, ([refund(payment_id="pay_2")], ()))
    sync.read_refunds("default", "pay_1")
    assert not Refund.objects.exists()


@pytest.mark.parametrize("page", [1, 2])
def test_an_unreadable_refund_on_any_page_is_an_error(fake: Fake, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """The sum of the others would be too small."""
    good, bad = ([refund(payment_id="pay_1")], ()), ([refund(payment_id="pay_1")], ("data[1]: no amount",))
    pages_of(fake, monkeypatch, *([bad, good] if page == 1 else [good, bad]))
    with pytest.raises(NoAnswer, match=r"a refund of pay_1 cannot be read: data\[1\]: no amount"):
        sync.read_refunds("default", "pay_1")


def test_no_answer_to_the_list_of_refunds_is_raised(fake: Fake) -> None:
    fake.read_script = [timeout()]
    with pytest.raises(NoAnswer):
        sync.read_refunds("default", "pay_1")
