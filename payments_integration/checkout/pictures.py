"""Codes that a machine reads, as inline SVG: black on white whatever the theme, with the quiet zone they need.

Lines and numbers, no inline style and no script, so that the strictest content policy shows them.
"""

from __future__ import annotations

import re

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

#: Longer ones make a code that no telephone reads from a screen, and take long to draw.
MAX_QR = 1500
#: Longer ones are wider than a page.
MAX_BARCODE = 60

#: The bar code of a Brazilian boleto is the one that is known to be Interleaved 2 of 5.
_BOLETO = re.compile(r"[0-9]{44}")
_CODE128 = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_QR_SCALE, _QR_BORDER = 4, 4
#: In modules, the width of the narrowest bar; a module is two pixels.
_BAR_QUIET, _BAR_HEIGHT, _BAR_SCALE = 10, 40, 2


def qr_code(payload: str) -> SafeString:
    """A QR code of the payload; empty where none can be drawn."""
    if not payload or len(payload) > MAX_QR:
        return SafeString("")
    # Most pages have no code, and most processes no page.
    import segno  # noqa: PLC0415

    try:
        code = segno.make(payload, micro=False)
    except ValueError:
        return SafeString("")  # too long in its encoding, or text that has none
    drawn = code.svg_inline(
        scale=_QR_SCALE, border=_QR_BORDER, dark="#000", light="#fff", svgclass="payments-qr", title=_("QR code"),
        omitsize=True,
    )  # fmt: skip
    # Its size where there is no style sheet; with the viewBox one can make it smaller.
    width, height = code.symbol_size(scale=_QR_SCALE, border=_QR_BORDER)
    sized = drawn.replace("<svg ", f'<svg role="img" width="{width}" height="{height}" ', 1)
    # The only text in it is the title, which is escaped.
    return mark_safe(sized)  # noqa: S308


def barcode(value: str) -> SafeString:
    """A bar code; empty where none can be drawn.

    44 digits are a boleto's: Interleaved 2 of 5. The spec names no kind for the others: Code 128, which holds any
    ASCII text and checks itself.
    """
    if len(value) > MAX_BARCODE:
        return SafeString("")
    if _BOLETO.fullmatch(value):
        return _bars(_interleaved(value))
    return _bars(_code128(value)) if _CODE128.fullmatch(value) else SafeString("")


def _interleaved(digits: str) -> str:
    from barcode.itf import ITF  # type: ignore[import-untyped]  # noqa: PLC0415

    modules: str = ITF(digits, narrow=1, wide=3).build()[0]
    return modules


def _code128(value: str) -> str:
    from barcode.codex import Code128  # type: ignore[import-untyped]  # noqa: PLC0415

    modules: str = Code128(value).build()[0]
    return modules


def _bars(modules: str) -> SafeString:
    """``"1101"`` is a bar of two modules, a gap, and a bar of one."""
    bars = "".join(
        f"M{_BAR_QUIET + found.start()} 0h{len(found[0])}v{_BAR_HEIGHT}h-{len(found[0])}z"
        for found in re.finditer("1+", modules)
    )
    wide, high = len(modules) + 2 * _BAR_QUIET, _BAR_HEIGHT
    return format_html(
        '<svg role="img" width="{}" height="{}" viewBox="0 0 {wide} {high}" class="payments-barcode"'
        ' preserveAspectRatio="none" shape-rendering="crispEdges"><title>{}</title>'
        '<path fill="#fff" d="M0 0h{wide}v{high}h-{wide}z"/><path fill="#000" d="{}"/></svg>',
        wide * _BAR_SCALE, high * _BAR_SCALE, _("Barcode"), bars, wide=wide, high=high,
    )  # fmt: skip
