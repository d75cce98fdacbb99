"""QR codes and bar codes: they say what they are to say, and run nothing."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest
import segno
from barcode.codex import Code128
from barcode.itf import ITF

from payments_integration.next_action import codes
from payments_integration.next_action.codes import MAX_BARCODE, MAX_QR, barcode, qr_code

BOLETO = "00190500954014481606906809350314337370000000"
SVG_PARTS = {"svg", "title", "g", "path"}


def drawn(svg: str) -> ElementTree.Element:
    """It is well-formed, it says what it is, and no part of it runs or brings a style."""
    root = ElementTree.fromstring(svg)
    assert {part.tag for part in root.iter()} <= SVG_PARTS
    for part in root.iter():
        assert not [name for name in part.attrib if name.startswith("on") or name in {"style", "href"}]
    assert root.attrib["role"] == "img"
    assert root.attrib["viewBox"]
    return root


def modules(svg: str) -> str:
    """The bars as python-barcode names them, read back from the picture."""
    root = drawn(svg)
    wide = int(root.attrib["viewBox"].split()[2])
    line = ["0"] * wide
    for start, width, back in re.findall(r"M(\d+) 0h(\d+)v\d+h-(\d+)z", root.findall("path")[1].attrib["d"]):
        assert width == back
        line[int(start) : int(start) + int(width)] = "1" * int(width)
    return "".join(line)


def test_a_qr_code_holds_exactly_its_payload() -> None:
    payload = "00020126580014br.gov.bcb.pix Ñandú <script>alert(1)</script>"
    svg = qr_code(payload)
    expected = segno.make(payload, micro=False).svg_inline(border=4).split(' d="')[1].split('"')[0]
    assert expected in svg
    title = drawn(svg).find("title")
    assert title is not None
    assert title.text == "QR code"
    # Black on white with its quiet zone, in every theme.
    assert 'fill="#fff"' in svg
    assert 'stroke="#000"' in svg


@pytest.mark.parametrize("payload", ["", "x" * (MAX_QR + 1), "🦙" * MAX_QR, "\ud800"])
def test_an_empty_or_too_long_payload_has_no_qr_code(payload: str) -> None:
    assert qr_code(payload) == ""


def test_the_digits_of_a_boleto_are_interleaved() -> None:
    assert modules(barcode(BOLETO)).strip("0") == ITF(BOLETO, narrow=1, wide=3).build()[0].strip("0")


@pytest.mark.parametrize("value", ["1", "12345678901234", "OXXO-123 x", "<b>&\"'", "~" * MAX_BARCODE])
def test_other_text_is_drawn_as_code_128(value: str) -> None:
    assert modules(barcode(value)).strip("0") == Code128(value).build()[0].strip("0")


def test_scanners_get_their_quiet_zone() -> None:
    assert modules(barcode("123")).startswith("0" * 10 + "1")
    assert modules(barcode("123")).endswith("1" + "0" * 10)


@pytest.mark.parametrize("value", [
    "", " ", " 12", "12 ", "Ñ1", "1\n2", "12\n", "\x00", "\u202e12", "\u0661\u0662", "\ud800", "1" * (MAX_BARCODE + 1),
    "\xf1123",
])  # fmt: skip
def test_text_that_code_128_cannot_hold_is_not_drawn(value: str) -> None:
    assert barcode(value) == ""


def test_no_image_library_is_needed() -> None:
    assert barcode("123")
    assert "PIL" not in sys.modules


@pytest.mark.parametrize("library", ["segno", "barcode"])
def test_a_code_is_left_out_without_its_library_and_the_log_names_the_extra(
    library: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    assert (qr_code("000201") == "") is (library == "segno")
    assert (barcode("123") == "") is (library == "barcode")
    assert 'pip install "payments-integration[checkout]"' in caplog.text
    assert codes.missing_libraries() == [library]


def test_nothing_is_missing_with_the_extra() -> None:
    assert codes.missing_libraries() == []
