"""docs/quickstart.md, followed word for word: to a paid order and a refund."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.projects.quickstart.person import Person
from tests.projects.quickstart.reader import ROOT, Block, Reader, blocks_of
from tests.servers import wait_until

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
BLOCKS = blocks_of(PAGE)
ADDED = "What the command adds"
TYPED = [block for block in BLOCKS if block.heading != ADDED]
MAX_LINES = 15
PATIENCE = 30.0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def test_the_page_leads_to_a_paid_order_and_a_refund(reader: Reader) -> None:
    files = [block for block in TYPED if block.file]
    lines = sum(len(block.lines) for block in files)
    commands = sum(len(block.lines) for block in TYPED if block.language == "console")
    [pasted] = [len(block.lines) for block in TYPED if block.language == "python" and not block.file]
    assert lines + pasted <= MAX_LINES
    words = f"You write {lines} lines into three files, paste {pasted} into a shell, and run {commands} commands."
    assert len(files) == 3
    assert words in " ".join(PAGE.split())

    reader.follow(TYPED)
    for block in BLOCKS:
        if block.heading == ADDED:
            assert_added(block, reader)

    person = Person()
    person.open(reader.shown.splitlines()[-1])
    assert person.address.startswith(f"http://127.0.0.1:{reader.provider}/checkout/")
    person.press("Pay $11.980")
    assert "the payment is complete" in person.page.text

    login, name, password = re.findall(r"Log in at `(.+?)` as `(.+?)` with the password `(.+?)`", PAGE)[0]
    person.open(login.replace(":8000", f":{reader.site}"))
    person.press("Log in", username=name, password=password)
    admin = person.address

    def is_paid() -> bool:
        person.open(admin)
        person.follow("Orders")
        person.follow("Order object (1)")
        _, fields, _ = person.page.buttons["Save"]
        return bool(fields["paid_at_0"])

    wait_until(is_paid, PATIENCE, "the handler to mark the order as paid")
    assert '"POST /payments/webhook/ HTTP/1.1" 200' in reader.read("log")
    person.open(admin)
    person.follow("Payments")
    [payment] = [link for link in person.page.links.values() if "/payment/pay_" in link]
    person.open(payment)
    for button in ("Review", "Refund CLP 11,980"):
        assert f"**{button}**" in PAGE
    person.follow("Refund")
    person.press("Review")
    person.press("Refund CLP 11,980")

    def is_refunded() -> bool:
        person.open(admin)
        person.follow("Refunds")
        return person.page.statuses[:1] == ["succeeded"]

    wait_until(is_refunded, PATIENCE, "the refund to succeed")
    wait_until(lambda: not is_paid(), PATIENCE, "the handler to see that nothing is left")


def assert_added(block: Block, reader: Reader) -> None:
    """The page shows what the command wrote."""
    written = reader.read(block.file)
    for line in block.lines:
        assert line.replace(":8400", f":{reader.provider}").partition("…")[0] in written, (block.file, line)
    if block.lead.startswith("As `"):
        assert written == block.text
