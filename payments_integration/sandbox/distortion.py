"""What a fault makes of an answer."""

from __future__ import annotations

import json
from typing import Final

from .errors import ApiError
from .faults import Fault
from .shapes import Wire, new_id
from .wire import ApiAnswer, LineFault

HTML: Final = b"<!doctype html><html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>"
OTHER_KINDS: Final = {
    "payment": ("payout", "pout"),
    "event": ("payment", "pay"),
}  # every other kind: a payment


def dump(data: Wire) -> bytes:
    """JSON as the API sends it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def error_answer(error: ApiError, request_id: str) -> ApiAnswer:
    """The answer that carries an error's envelope."""
    return ApiAnswer(error.status, dump(error.envelope(request_id)), dict(error.headers))


def distort(answer: ApiAnswer, fault: Fault, request_id: str) -> ApiAnswer:
    """The answer that goes out in place of this one."""
    if fault.kind in ("reset", "truncate", "drip"):
        return ApiAnswer(
            answer.status,
            answer.body,
            answer.headers,
            LineFault(fault.kind, fault.delay or 0.0, fault.count or 1),
        )
    if fault.kind == "html":
        return ApiAnswer(fault.status or 200, HTML, {"Content-Type": "text/html; charset=utf-8"})
    if fault.kind == "redirect":
        return ApiAnswer(fault.status or 302, b"", {"Location": "/maintenance", "Content-Type": "text/html"})
    if fault.kind in ("wrong_id", "wrong_kind", "empty_page"):
        return ApiAnswer(answer.status, _falsify(answer.body, fault.kind), answer.headers)
    code = {"rate_limited": "rate_limited", "in_progress": "idempotency_in_progress"}.get(fault.kind)
    if code is not None or fault.kind == "error":
        headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
        error = ApiError(code or fault.code or "internal_error", status=fault.status, headers=headers)
        return error_answer(error, request_id)
    return answer


def _falsify(body: bytes, kind: str) -> bytes:
    data: Wire = json.loads(body)
    if kind == "empty_page":
        return dump({**data, "data": [], "has_more": True}) if "data" in data else body
    listed = data.get("data")
    target = listed[0] if isinstance(listed, list) and listed else data
    if "id" not in target:
        return body
    prefix = str(target["id"]).partition("_")[0]
    if kind == "wrong_kind":
        target["object"], prefix = OTHER_KINDS.get(target.get("object", ""), ("payment", "pay"))
    target["id"] = new_id(prefix)
    return dump(data)
