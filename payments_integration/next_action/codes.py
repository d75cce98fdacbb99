"""Draw QR codes and bar codes as inline SVG: black on white in every theme, with the quiet zone that scanners need.

The SVG has no inline style and no script, so even the strictest content security policy shows it. The libraries come
with the extra ``checkout`` and are imported when a code is first drawn. Without them nothing is drawn, and pages
show only the code's text.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: A longer payload takes long to draw, and no phone can read its code from a screen.
MAX_QR = 1500
#: A longer bar code is wider than a page.
MAX_BARCODE = 60
EXTRA = 'pip install "payments-integration[checkout]"'

#: 44 digits are the bar code of a Brazilian boleto, which is Interleaved 2 of 5.
_BOLETO = r"[0-9]{44}"
_CODE128 = r"[!-~](?:[ -~]*[!-~])?"

_QR_SCALE, _QR_BORDER = 4, 4
#: The unit is a module, which is the width of the narrowest bar. A module is two pixels wide.
_BAR_QUIET, _BAR_HEIGHT, _BAR_SCALE = 10, 40, 2
_LIBRARIES = ("segno", "barcode")


def missing_libraries() -> list[str]:
    """Return the modules of the extra ``checkout`` that are not installed."""
    return [name for name in _LIBRARIES if find_spec(name) is None]


def qr_code(payload: str, *, css_class: str = "payments-qr") -> SafeString:
    """Return a QR code of the payload; empty if none can be drawn."""
    if not payload or len(payload) > MAX_QR:
        return SafeString("")
    try:
        import segno  # noqa: PLC0415
    except ImportError:
        return _not_installed("QR code")
    try:
        code = segno.make(payload, micro=False)
    except ValueError:
        return SafeString("")  # the payload is too long, or cannot be encoded
    drawn = code.svg_inline(
        scale=_QR_SCALE, border=_QR_BORDER, dark="#000", light="#fff", svgclass=css_class, title=_("QR code"),
        omitsize=True,
    )  # fmt: skip
    # This is the size without a style sheet. Because of the viewBox, a style sheet can make it smaller.
    width, height = code.symbol_size(scale=_QR_SCALE, border=_QR_BORDER)
    sized = drawn.replace("<svg ", f'<svg role="img" width="{width}" height="{height}" ', 1)
    # The only text in it is the title, which is escaped.
    return mark_safe(sized)  # noqa: S308


def barcode(value: str) -> SafeString:
    """Return a bar code; empty if none can be drawn.

    44 digits are the code of a boleto, drawn as Interleaved 2 of 5. The spec names no kind for other codes. They are
    drawn as Code 128, which can hold any ASCII text and has a check digit.
    """
    if len(value) > MAX_BARCODE or not re.fullmatch(_CODE128, value):
        return SafeString("")
    try:
        from barcode.codex import Code128  # type: ignore[import-untyped]  # noqa: PLC0415
        from barcode.itf import ITF  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError:
        return _not_installed("bar code")
    code = ITF(value, narrow=1, wide=3) if re.fullmatch(_BOLETO, value) else Code128(value)
    return _bars(code.build()[0])


def _not_installed(kind: str) -> SafeString:
    logger.warning("A %s was needed and not drawn, only its text is shown: %s", kind, EXTRA)
    return SafeString("")


def _bars(modules: str) -> SafeString:
    """Draw the modules: ``"1101"`` is a bar of two modules, a gap, and a bar of one module."""
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
