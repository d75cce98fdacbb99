"""``before_send`` for Sentry: remove payers' data, bank accounts and secrets from error reports.

Sentry records the variables of every frame, the request's body and earlier log messages. It ignores Django's
``sensitive_variables``. Use the same function for errors and for transactions:

    sentry_sdk.init(dsn=…, before_send=sentry.before_send, before_send_transaction=sentry.before_send)

The function reads the event as plain data. It imports neither sentry_sdk nor models, so settings can import it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import resolve

from payments_integration import conf

_APP = "payments_integration"

#: Shown in place of a removed value. Sentry uses the same text.
FILTERED = "[Filtered]"

#: A key or variable with one of these words in its name holds personal data or a secret.
_WORDS = (
    "payer|payee|destination|beneficiary|recipient|holder|document|account_?number|e_?mail|phone|device_?id|"
    "remote_addr|forwarded|real_ip|ip_address|secret|passw|token|api_?key|encryption_?key|authori[sz]|credential|"
    "signature|cookie|next_action|metadata"
)
_PERSONAL = re.compile(_WORDS, re.IGNORECASE)
#: Names that are personal only as a whole word: they may be part of other names.
_NAMES = frozenset({
    "name", "first_name", "last_name", "full_name", "number", "ip", "reason", "failure_reason", "details", "extra",
    "body", "payload",
})  # fmt: skip
#: Members of personal data that hold a code, which is not personal.
_CODES = ("type", "code", "country", "currency")

#: A personal name with its value within a text: the repr of a dict, JSON, or a query string. An SQL placeholder is not
#: a value.
_NAMED = re.compile(rf"""(?:{_WORDS}|\bname\b)\w*[\\'"]*\s*[:=](?!\s*(?:%s|%\(\w+\)s|\?|NULL))""", re.IGNORECASE)
#: The value of a personal name within a text.
_PAIR = re.compile(
    rf"""[\\'"]+(?:\w*(?:{_WORDS})\w*|{"|".join(sorted(_NAMES))})[\\'"]+\s*:\s*[\\]*['"]([^\\'"]+)""", re.IGNORECASE
)
#: Values that are recognized by their form: keys and secrets, e-mail addresses, phone numbers, documents, also as they
#: stand in a URL.
_VALUE = re.compile(
    r"""\bsk_\w+ | \bwhsec_\w+ | \bBearer\s+[^\s'",]+ | \bv1=[0-9a-f]{64}
    | [^\s@'"<>(){}\[\]=:;,/\\]{1,64}(?:@|%40)[\w-]+(?:\.[\w-]+)+
    | (?:\+|%2B)[1-9]\d{7,14}\b
    | \b\d{1,3}(?:\.\d{3}){2}-[\dkK]{1,2}\b | \b\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}\b | \b\d{7,9}-[\dkK]{1,2}\b""",
    re.VERBOSE,
)
#: What stands in the URLs of this app's pages: the token of a payer's page, and a search for a payer.
_IN_URL = re.compile(
    rf"""((?:checkout/(?:status|return)|receipt)/)[^\s'"<>/?\#]{{16,}} | (/{_APP}/[^\s'"<>?]*\?)[^\s'"<>]+""",
    re.VERBOSE,
)
#: The text of a ProviderError without the provider's message.
_PROVIDER_ERROR = re.compile(r"(\w+ \(HTTP \d+[^)]*\)): .+", re.DOTALL)

#: In characters. Shorter values are kept, because they occur within other words.
_MIN_LENGTH = 4
#: In characters. A shorter path of a URL may occur in others, and is no secret.
_LONG_PATH = 16
_NOT_VALUES = frozenset({"None", "True", "False", FILTERED})

#: Parts of an event that say nothing about a request. They are copied unchanged, even if the rest cannot be cleaned.
_TECHNICAL = frozenset(
    {
        "event_id", "timestamp", "start_timestamp", "type", "level", "platform", "release", "environment", "dist",
        "server_name", "sdk", "modules", "logger", "transaction_info", "measurements",
    }
)  # fmt: skip
_TECHNICAL_CONTEXTS = frozenset({"runtime", "os", "device", "app", "browser", "gpu", "culture", "cloud_resource"})
#: The names of a frame's fields with lines of source.
_SOURCE = ("pre_context", "context_line", "post_context")


def before_send(event: Any, hint: Any = None) -> Any:
    """Return the event without personal data and secrets. Also for ``before_send_transaction``.

    Removes all variables from this app's frames and from the frames that they called, including handlers. Elsewhere,
    removes a variable if its name or its content shows personal data, and does the same for parts of messages,
    breadcrumbs and spans. In an event with a frame or an exception of this app, removes the whole messages of other
    exceptions and the whole body of the request.

    It never raises. If it fails, an error is sent without any data, and a transaction is not sent.
    """
    try:
        return _Cleaner(event).event()
    except Exception as error:
        return _emptied(event, error)


def _emptied(event: Any, error: Exception) -> Any:
    """Return the technical fields of an error report that could not be cleaned. None drops the report."""
    if not isinstance(event, dict) or event.get("type") == "transaction":
        return None
    kept = {key: value for key, value in event.items() if key in _TECHNICAL}
    text = f"{_APP}.contrib.sentry failed with {type(error).__name__}; the data of this report was removed"
    return {**kept, "logentry": {"message": text}}


class _Cleaner:
    """A cleaner for one event. It knows the values in the event that are personal or secret."""

    def __init__(self, event: dict[str, Any]) -> None:
        self._event = event
        self._is_ours = _concerns_us(event)
        found = {text for text in [*_secrets(), *_values(event)] if _is_value(text)}
        # Replace the longest first, because one text may be a part of another.
        self._known = sorted(found, key=len, reverse=True)

    def event(self) -> dict[str, Any]:
        return {key: self._part(key, value) for key, value in self._event.items() if key != "_meta"}

    def _part(self, key: str, value: Any) -> Any:
        if key in _TECHNICAL:
            return value
        if key == "exception":
            return self._listed(value, self._exception)
        if key == "threads":
            return self._listed(value, self._with_stack)
        if key == "stacktrace":
            return self._stack(value)
        if key == "logentry" and self._is_ours:
            # Keep the message's template and leave out its arguments.
            return {"message": self._text(str(value.get("message") or ""))}
        if key == "request":
            return self._request(value)
        if key == "contexts":
            return {name: each if name in _TECHNICAL_CONTEXTS else self._any(each) for name, each in value.items()}
        return self._any(value)

    def _listed(self, value: Any, clean: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        cleaned = [clean(each) for each in _items(value)]
        return {"values": cleaned} if isinstance(value, Mapping) else cleaned

    def _exception(self, value: dict[str, Any]) -> dict[str, Any]:
        cleaned = self._with_stack(value)
        text = value.get("value")
        if isinstance(text, str) and text:
            if _is_own_module(value.get("module")):
                # The messages of our exceptions repeat no value, but the provider's part of them might.
                cleaned["value"] = self._without_values(_PROVIDER_ERROR.sub(rf"\1: {FILTERED}", text))
            else:
                cleaned["value"] = FILTERED if self._is_ours else self._text(text)
        return cleaned

    def _with_stack(self, value: dict[str, Any]) -> dict[str, Any]:
        """Clean an exception or a thread."""
        stacks = ("stacktrace", "raw_stacktrace")
        plain = ("type", "module", "name", "id")
        return {
            key: self._stack(each) if key in stacks else each if key in plain else self._any(each)
            for key, each in value.items()
        }

    def _stack(self, stack: Any) -> Any:
        if not stack:
            return stack
        frames = stack.get("frames") or []
        # A stack without a frame of this app belongs to an exception that is chained to one of the app's exceptions.
        hidden = self._is_ours and not any(map(_is_own_frame, frames))
        cleaned = []
        for frame in frames:
            hidden = hidden or _is_own_frame(frame)
            cleaned.append(self._frame(frame, hidden))
        return {**stack, "frames": cleaned}

    def _frame(self, frame: dict[str, Any], hidden: bool) -> dict[str, Any]:
        cleaned = dict(frame)
        if frame.get("vars"):
            # The wrappers of sensitive_variables hold the arguments of the wrapped function.
            hidden = hidden or frame.get("module") == "django.views.decorators.debug"
            names = frame["vars"]
            cleaned["vars"] = dict.fromkeys(names, FILTERED) if hidden else self._any(names)
        for key in _SOURCE:
            lines = frame.get(key)
            if isinstance(lines, list):
                cleaned[key] = [self._without_values(str(line)) for line in lines]
            elif lines:
                cleaned[key] = self._without_values(str(lines))
        return cleaned

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = self._any(request)
        if self._is_ours or _is_own_url(request.get("url")):
            cleaned.update({key: FILTERED for key in ("data", "query_string") if request.get(key)})
        return cleaned

    def _any(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._without_values(str(key)): self._member(str(key), each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._any(each) for each in value]
        if value is None or isinstance(value, bool | int | float | datetime):
            return value
        return self._text(value if isinstance(value, str) else repr(value))

    def _member(self, key: str, value: Any) -> Any:
        if _is_personal(key):
            return FILTERED if value not in (None, "", {}, []) else value
        if key == "sys.argv" and isinstance(value, list | tuple):
            return _command(value)
        return self._any(value)

    def _text(self, text: str) -> str:
        return FILTERED if _NAMED.search(text) else self._without_values(text)

    def _without_values(self, text: str) -> str:
        for known in self._known:
            text = text.replace(known, FILTERED)
        text = _IN_URL.sub(lambda found: f"{found[1] or found[2]}{FILTERED}", text)
        return _VALUE.sub(FILTERED, text)


def _secrets() -> Iterator[str]:
    """Yield the secrets in the settings of the app and of its optional apps."""
    if not settings.configured:  # reading a setting would raise
        return
    yield from _values(getattr(settings, conf.NAME, {}))
    yield str(getattr(settings, "PAYMENTS_METRICS_TOKEN", ""))
    notify = getattr(settings, "PAYMENTS_NOTIFY", None)
    chat = str(notify.get("CHAT_URL", "")) if isinstance(notify, Mapping) else ""
    # Its parts too: Sentry records the address of a request and its query apart.
    parts = urlsplit(chat)
    yield from (chat, chat.partition("?")[0], parts.query)
    if len(parts.path) >= _LONG_PATH:
        yield parts.path


def _values(value: Any, personal: bool = False) -> Iterator[str]:
    """Yield the texts in a value whose names mark them as personal data or secrets."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            name = str(key).lower()
            if not (personal and name.endswith(_CODES)):
                # Ignore _NAMES here: outside personal data, "name" and "number" may be anything.
                yield from _values(each, personal or _PERSONAL.search(name) is not None)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _values(each, personal)
    elif isinstance(value, str):
        if personal:
            yield value
            # Sentry records the repr of a variable, with quotes.
            yield value.strip("'\"")
        yield from _PAIR.findall(value)


def _is_value(text: str) -> bool:
    return len(text) >= _MIN_LENGTH and text not in _NOT_VALUES and not text.startswith("<")


def _is_personal(key: str) -> bool:
    name = key.strip("'\"").lower().replace("-", "_")
    return name in _NAMES or _PERSONAL.search(name) is not None


def _concerns_us(event: Mapping[str, Any]) -> bool:
    """Return True if the app raised, passed on or logged the event."""
    if _is_own_module(event.get("logger")):
        return True
    exceptions = _items(event.get("exception"))
    holders = [*exceptions, *_items(event.get("threads")), event]
    stacks = [holder.get("stacktrace") or {} for holder in holders]
    return any(_is_own_module(each.get("module")) for each in exceptions) or any(
        _is_own_frame(frame) for stack in stacks for frame in stack.get("frames") or []
    )


def _items(part: Any) -> list[Any]:
    return list((part.get("values") if isinstance(part, Mapping) else part) or [])


def _is_own_module(name: Any) -> bool:
    return isinstance(name, str) and (name == _APP or name.startswith(f"{_APP}."))


def _is_own_frame(frame: Mapping[str, Any]) -> bool:
    if frame.get("module"):
        return _is_own_module(frame["module"])
    return f"{_APP}/" in str(frame.get("filename") or "").replace("\\", "/")


def _is_own_url(url: Any) -> bool:
    """Return True if a URL belongs to the app or its admin pages, or if that cannot be determined."""
    try:
        path = urlsplit(str(url)).path
        return _APP in resolve(path).app_names or f"/{_APP}/" in path
    except Exception:
        return True


def _command(arguments: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Return a command line without the arguments of this app's commands, which may name a payer."""
    for number, argument in enumerate(arguments):
        if str(argument).startswith("payments"):
            return [*arguments[: number + 1], *[FILTERED] * len(arguments[number + 1 :])]
    return list(arguments)
