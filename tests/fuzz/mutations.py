"""Bodies, headers and answers turned bad, by one random generator: the same seed gives the same bytes."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any


class Raw(bytes):
    """A token of JSON as it is to stand there, sound or not."""


class Pairs(list[Any]):
    """A JSON object that may have a key twice: ``[key, value]`` each."""


def _text(value: str) -> Raw:
    return Raw(json.dumps(value).encode())


NUMBERS = [
    *("0", "-0", "-0.0", "1", "-1", "1.0", "1.9", "1e0", "01", "1.", "+1", "0x10", "1_000"),
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "1e300", "1e16", "5e-324", "1e-999"),
    *(str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), str(2**64), str(2**53 + 1), "2147483648"),
    *("9" * 400, "9" * 4300, "9" * 4301, "true", "false", "null"),
]
TEXTS = [
    *("", " ", "x", "12", "null", "é", "漢", "\U0001f600", "a\u0301", "\u202e", "\u2028", "\ufeff", "\uffff", "\x7f"),
    *("a\0b", "\0", "x" * 64, "x" * 65, "x" * 255, "x" * 256, "x" * 2048, "x" * 2049),
    *("\U0001f600" * 64, "\U0001f600" * 255, "\U0001f600" * 256, "\0" * 255, "é" * 2048),
    *("CLP", "clp", "CLP ", " CLP", "C LP", "XXX", "succeeded", "teleported", "expired", "ß" * 64),
    *("pay_1", "pay_2", "PAY_1", "pay_1 ", "pay_fuzz", "ref_1", "evt_1", "evt_2", "quarantine_" + "0" * 64, ".", ".."),
    *("javascript:alert(1)", "https://pay.example/c/1", "<script>", "%s%d{}", "'; DROP TABLE x; --", "\\"),
    *("event", "payment", "payout", "refund", "balance", "dispute", "deposit_reference", "webhook_endpoint", "list"),
    *("payment.created", "payment.", "payment", ".payment", "payout.delayed", "refund.x", "balance.updated", "a.b.c"),
]
TIMES = [
    *("2026-02-30T00:00:00Z", "2026-06-30T23:59:60Z", "2026-06-30T23:59:59", "2026-06-30", "2026-06-30T23:59:59Z"),
    *("2026-06-30T23:59:59.123456789Z", "2026-06-30T23:59:59.9999999Z", "2026-06-30T23:59:59.1234567891234567Z"),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00"),
    *("9999-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2038-01-19T03:14:08Z"),
    *("2026-06-30T24:00:00Z", "2026-06-30T23:59:59+24:00", "2026-06-30T23:59:59-23:59", "2026-06-30 23:59:59Z"),
    *("2026-W26-2T00:00:00Z", "20260630T235959Z", "١٩٩٩-01-01T00:00:00Z", "9000-01-01T00:00:00Z", "1767225600"),
]
BROKEN_TEXTS = [
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"a\ud83d"', rb'"\ud83dx"', rb'"\u00"', rb'"\x"', b'"\n"', b'"\0"', b'"'),
    *(b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b"'x'", b""),
]
STRUCTURES = [
    *(
        "[]",
        "{}",
        "[[]]",
        "[null]",
        '{"": ""}',
        '{"object": "payment"}',
        '{"object": ["payment"]}',
        '{"a": 1, "a": 2}',
    ),
    *(r'{"\u0000": 1, "\ufffd": 2}', '{"extra": 1, "id": 2}', '[1, 2.5, "x", true]', '[{"id": "pay_1"}]'),
]
KEYS = [
    *("id", "object", "type", "status", "data", "amount", "currency", "created_at", "updated_at", "metadata", "payer"),
    *("extra", "new", "", "a\0b", "x" * 300, "payment_id", "payout_id", "refund_id", "details", "fee", "Amount", "é"),
]


def nasty(random: Random) -> Raw:
    """One value that somebody may trip over."""
    kind = random.randrange(12)
    if kind < 3:
        return Raw(random.choice(NUMBERS).encode())
    if kind < 6:
        text = random.choice(TEXTS)
        return _text(text) if random.random() < 0.7 else Raw(json.dumps(text, ensure_ascii=False).encode())
    if kind < 8:
        return _text(random.choice(TIMES))
    if kind == 8:
        return Raw(random.choice(BROKEN_TEXTS))
    if kind == 9:
        return Raw(random.choice(STRUCTURES).encode())
    if kind == 10:
        return deep(random.choice((2, 28, 29, 30, 31, 32, 33, 60, 300)), random)
    return Raw(str(random.randrange(-(2**66), 2**66)).encode())


def deep(levels: int, random: Random) -> Raw:
    if random.random() < 0.5:
        return Raw(b"[" * levels + b"]" * levels)
    return Raw(b'{"a":' * levels + b"1" + b"}" * levels)


def mutated_json(body: bytes, random: Random, *, times: int = 4) -> bytes:
    """A JSON document with up to ``times`` changes of its structure; what is no JSON has its bytes changed."""
    try:
        box = Pairs([["", json.loads(body, object_pairs_hook=_pairs)]])
        for _ in range(random.randint(1, times)):
            _change(box, random)
        out = b"".join(_written(box[0][1]))
    except (ValueError, RecursionError):
        return mutated_bytes(body, random)
    return mutated_bytes(out, random) if random.random() < 0.1 else out


def mutated_bytes(body: bytes, random: Random) -> bytes:
    """Bytes that were cut, flipped, encoded otherwise, or have more before, in or after them."""
    at = random.randrange(len(body) + 1)
    match random.randrange(9):
        case 0:
            return b"\xef\xbb\xbf" + body
        case 1:
            return body.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-16-le", "utf-32", "utf-7")))
        case 2:
            return body[:at]
        case 3:
            return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
        case 4:
            return body[:at] + bytes(random.randrange(256) for _ in range(random.randint(1, 4))) + body[at:]
        case 5:
            return body + random.choice((b"\0", b" ", b"\n", b"{}", b",", b"\x1a"))
        case 6:
            return random.choice((b" ", b"\n\t", b"\0", b")]}',\n", b"[")) + body
        case 7:
            return body.decode("utf-8", "replace").encode("latin-1", "replace")
    return body[:at] + random.choice((*BROKEN_TEXTS, b"\xff", b"\0", b"//x\n")) + body[at:]


#: What headers are made of; ``<…>`` stands for a value that the target puts in.
HEADER_TOKENS = [
    *("t=", "v1=", "v0=", "T=", "V1=", "v2=", ",", ", ", " ", "=", "==", ";", ",,", "\t", "\n", "\r\n", "\0"),
    *("<t>", "<v1>", "<w1>", "<old>", "<v1 of old>", "<other>", "<T>", "0<t>", "+<t>", "-<t>", "<t>.0", "<t>e0"),
    *("1_000", "٣", "²", "é", "\xff", "\ud800", "0" * 64, "9" * 5000, "v1=0," * 8, "v1=0," * 1000, "<V1>", "<v1>0"),
]


def mutated_header(header: bytes, random: Random) -> bytes:
    """A header (with its ``<…>``) with tokens put in, left out, doubled or moved."""
    text = header.decode("utf-8", "surrogateescape")
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text) + 1)
        parts = text.split(",")
        match random.randrange(6):
            case 0:
                text = text[:at] + random.choice(HEADER_TOKENS) + text[at:]
            case 1:
                text = text[:at] + text[at + random.randint(1, 4) :]
            case 2:
                text = ",".join([*parts, random.choice(parts)])
            case 3:
                random.shuffle(parts)
                text = ",".join(parts)
            case 4:
                parts[random.randrange(len(parts))] = random.choice(("t=", "v1=", "v0=")) + random.choice(
                    HEADER_TOKENS
                )
                text = ",".join(parts)
            case 5:
                parts.insert(random.randrange(len(parts) + 1), "v1=" + random.choice(("<v1>", "<w1>", "<other>", "0")))
                text = ",".join(parts)
    return text.encode("utf-8", "surrogatepass" if "\ud800" in text else "surrogateescape")


def mutated_answer(answer: bytes, random: Random) -> bytes:
    """An answer with its status, a header or its body changed: see ``targets.answer``."""
    head, _, body = answer.partition(b"\n\n")
    lines = head.split(b"\n")
    match random.randrange(8):
        case 0:
            name = lines[0].split(b" ")[0]
            status = random.choice(
                (200, 201, 204, 299, 300, 302, 400, 401, 404, 408, 409, 422, 429, 500, 503, 599, 999)
            )
            lines[0] = name + b" %d" % status
        case 1:
            lines.append(random.choice(_HEADERS) + b": " + random.choice(_HEADER_VALUES))
        case _:
            body = mutated_json(body, random)
    return b"\n".join(lines) + b"\n\n" + body


_HEADERS = [b"Date", b"Retry-After", b"X-Request-Id", b"RateLimit-Remaining", b"RateLimit-Reset", b"RateLimit-Limit"]
_HEADER_VALUES = [
    *(b"", b"0", b"1", b"-1", b"999999", b"9" * 30, b"1.5", b"soon", b"\xc3\xa9", b"\xd9\xa3", b"nan", b"1_0", b"+1"),
    *(b"Sun, 01 Mar 2026 12:00:01 GMT", b"Sun, 99 Foo 2026 12:00:01 GMT", b"Fri, 31 Dec 9999 23:59:59 GMT"),
    *(
        b"Sat, 01 Jan 0000 00:00:00 GMT",
        b"Mon, 01 Jan 0001 00:00:00 GMT",
        b"Sun, 01 Mar 2026 25:61:61 GMT",
        b"x" * 400,
    ),
]


def _pairs(items: list[tuple[str, Any]]) -> Pairs:
    return Pairs([key, value] for key, value in items)


def _written(node: Any) -> list[bytes]:
    if isinstance(node, Raw):
        return [node]
    if isinstance(node, list):
        parts: list[bytes] = []
        for child in node:
            key = b"%s:" % _text(child[0]) if isinstance(node, Pairs) else b""
            value = child[1] if isinstance(node, Pairs) else child
            parts += [b",", key, *_written(value)]
        opening, closing = (b"{", b"}") if isinstance(node, Pairs) else (b"[", b"]")
        return [opening, *parts[1:], closing]
    return [json.dumps(node).encode()]


def _slots(node: Any) -> list[tuple[list[Any], int]]:
    """Every place where a value stands: a list and its index (the pair's second item in an object)."""
    found: list[tuple[list[Any], int]] = []
    if isinstance(node, list):
        for index, child in enumerate(node):
            if isinstance(node, Pairs):
                found += [(child, 1), *_slots(child[1])]
            else:
                found += [(node, index), *_slots(child)]
    return found


def _objects(node: Any) -> list[Pairs]:
    children = [child[1] for child in node] if isinstance(node, Pairs) else node if isinstance(node, list) else []
    own = [node] if isinstance(node, Pairs) else []
    return own + [pairs for child in children for pairs in _objects(child)]


def _change(box: Pairs, random: Random) -> None:
    slots = _slots(box)
    holder, index = random.choice(slots)
    objects = [pairs for pairs in _objects(box[0][1]) if pairs]
    kind = random.randrange(14)
    if kind < 6 or not objects:
        holder[index] = nasty(random)
        return
    pairs = random.choice(objects)
    at = random.randrange(len(pairs))
    if kind == 6:
        del pairs[at]
    elif kind == 7:
        pairs.insert(random.randrange(len(pairs) + 1), [pairs[at][0], nasty(random)])
    elif kind == 8:
        pairs[at][0] = random.choice(KEYS)
    elif kind == 9:
        pairs.append([random.choice(KEYS), nasty(random)])
    elif kind == 10:
        for _ in range(random.choice((1, 1, 2, 29))):
            holder[index] = [holder[index]] if random.random() < 0.5 else Pairs([["a", holder[index]]])
    elif kind == 11:
        other, place = random.choice(slots)
        holder[index], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[index])
    elif kind == 12:
        other, place = random.choice(slots)
        holder[index] = copy.deepcopy(other[place])
    else:
        holder[index] = _text(random.choice(TEXTS))
