"""The failure catalogue: what this app must survive, and on what. docs/reliability.md says what happens in each case.

A test of a case carries ``@pytest.mark.case(number)``.
"""

from __future__ import annotations

from dataclasses import dataclass

SQLITE, POSTGRES, MARIADB = "SQLite", "PostgreSQL", "MariaDB"
REDIS, RABBITMQ = "Redis", "RabbitMQ"
GUNICORN = "gunicorn"

ALL = (SQLITE, POSTGRES, MARIADB)
BROKERS = (REDIS, RABBITMQ)


@dataclass(frozen=True, slots=True)
class Case:
    number: int
    title: str
    #: Each of these must have a test that passes there.
    where: tuple[str, ...]
    #: What must be built before the case can arise.
    awaits: str = ""


CASES = (
    Case(1, "no header, no t, no v1, two t", ALL),
    Case(2, "t off by 299 / 301 s, past and future", ALL),
    Case(3, "t = 1_000, +12, Arabic digits", ALL),
    Case(4, "non-ASCII v1", ALL),
    Case(5, "5,000-digit t; 1,000 v1 parts", ALL),
    Case(6, "two v1, either one valid", ALL),
    Case(7, "valid for another account only, or under an unknown secret", ALL),
    Case(8, "one byte changed; JSON re-serialised", ALL),
    Case(9, "chunked body under WSGI", (GUNICORN,)),
    Case(10, "Content-Length: abc; short body", ALL),
    Case(11, "body over the limit", ALL),
    Case(12, "a middleware that already read the body as form data", ALL),
    Case(13, "GET, HEAD; missing slash; SECURE_SSL_REDIRECT; a login-required middleware", ALL),
    Case(14, "Transfer-Encoding together with Content-Length", (GUNICORN,)),
    Case(15, "signed: not JSON, list at the root, no id", ALL),
    Case(16, "duplicate JSON keys", ALL),
    Case(17, "NaN, 1e999 in a body", (SQLITE, MARIADB)),
    Case(18, "depth of 32 and of 100,000", ALL),
    Case(19, "\\u0000 in a string", (POSTGRES,)),
    Case(20, "lone surrogate", ALL),
    Case(21, "BOM or UTF-16 bytes", ALL),
    Case(22, 'amount 2^63, 1.9, true, "12"', ALL),
    Case(23, "bad date, leap second, no zone, 9 decimals", ALL),
    Case(24, "unknown type, status, field", ALL),
    Case(25, "type and data.object disagree", ALL),
    Case(26, "ids that differ by case or a trailing space", (MARIADB,)),
    Case(27, "rows dropped or truncated by ignore_conflicts", (SQLITE, MARIADB)),
    Case(28, "same id, different content", ALL),
    Case(29, "same event through two endpoints", ALL),
    Case(30, "manual redelivery on day 29", ALL),
    Case(31, "refund before its payment", ALL),
    Case(32, "over-long text from a caller, from the provider", (SQLITE,)),
    Case(33, "20 identical deliveries at once", ALL),
    Case(34, "the winner rolls back", ALL),
    Case(35, "three-way, winner rolls back", (MARIADB,)),
    Case(36, "SELECT FOR UPDATE on a missing row, then insert", (MARIADB,)),
    Case(37, "winner invisible after the duplicate error", (MARIADB,)),
    Case(38, "read-then-write transaction", (SQLITE,)),
    Case(39, "lock wait timeout: the earlier statement survives", (MARIADB,)),
    Case(40, "skip_locked silently ignored", (SQLITE,)),
    Case(41, "8 claimants of one event", ALL),
    Case(42, "a lease expires while its holder still runs", ALL),
    Case(43, "all permutations of 5 events, by webhook and by reconciliation", ALL),
    Case(44, "equal created_at, two ids, different content", ALL),
    Case(45, "an event lands between GET and save", ALL),
    Case(46, "late expired after succeeded; a true expired → succeeded", ALL),
    Case(47, "after the inbox commit, before the wake-up", ALL),
    Case(48, "after the commit, before the 200", ALL),
    Case(49, "in the middle of applying; after applying, before done", ALL),
    Case(50, "after the intent is committed, before sending", ALL),
    Case(51, "after sending, before saving the answer", ALL),
    Case(52, "between two pages of a reconciliation", ALL),
    Case(53, "reset after the request was sent; truncated answer", ALL),
    Case(54, "slow drip", ALL),
    Case(55, "302 on POST", ALL),
    Case(56, "200 with HTML or an id of another kind", ALL),
    Case(57, "409 in_progress / conflict", ALL),
    Case(58, "429 with Retry-After missing, -1, 999999, text", ALL),
    Case(59, "5xx for hours", ALL),
    Case(60, "crosses 24 h while unknown", ALL),
    Case(61, "webhook before the POST's answer", ALL),
    Case(62, "two equal partial refunds, one unknown", ALL),
    Case(63, "rotate-secret: answer lost", ALL),
    Case(64, "has_more with an empty page; a repeated cursor; cursor 404", ALL),
    Case(65, "new events during paging; an old event that shows late", ALL),
    Case(66, "down for more than 30 days", ALL),
    Case(67, "a .netrc for the host", ALL),
    Case(68, "broker refuses connections", BROKERS),
    Case(69, "broker accepts and stays silent", (REDIS,)),
    Case(70, "task longer than the visibility timeout", (REDIS,)),
    Case(71, "delivery unacknowledged > 30 min closes the channel", (RABBITMQ,)),
    Case(72, "worker child killed", BROKERS),
    Case(73, "broker wiped", BROKERS),
    Case(74, "a worker that stops consuming after a reconnect", (REDIS,)),
    Case(75, "two beats; overlapping reconciliations", ALL),
    Case(76, "database down, read-only or full, in the view", ALL),
    Case(77, "ATOMIC_REQUESTS; a database router", ALL),
    Case(78, "local clock ±10 min; a step back", ALL),
    Case(79, "a provider time one day ahead", ALL),
    Case(80, "an admin action by GET or without a CSRF token", ALL),
    Case(81, "a person approves their own payout, superuser included", ALL),
    Case(82, "a change after the request for approval", ALL),
    Case(83, "double click; two approvals at once", ALL),
    Case(84, "javascript: in checkout_url", ALL),
    Case(85, "document, account number, key or secret in a log, traceback or repr", ALL),
    Case(86, "encryption key rotated / missing", ALL),
    Case(87, "personal data erased, then the event replayed", ALL),
    Case(88, "staff without permissions calls every admin URL and action", ALL),
    Case(89, "answer of a repeated POST is older than an event already applied", ALL),
    Case(90, "first attempt timed out but ran, second is answered 401 or 422", ALL),
    Case(91, "API key or base URL replaced while an Operation is unknown", ALL),
    Case(92, "two customers' clients send the same Idempotency-Key to the merchant's API", ALL),
    Case(93, "an event id or object of another account", ALL),
    Case(94, "a handler fails for succeeded, then chargeback arrives", ALL),
    Case(95, "a handler that takes 30 s", ALL),
    Case(96, "a page of the provider larger than the answer limit (100 payments with 12 KB metadata keys)", ALL),
    Case(97, "a pass keeps failing after it stored events of an object; a later one is delivered", ALL),
    Case(98, "a customer of the API names somebody else's merchant_reference", ALL),
    Case(99, "our clock 2 h back, 3 h or 90 min ahead around an unknown outcome, provider down for 24 h", ALL),
    Case(100, "our clock 6 to 180 min off when sent, answer lost", ALL),
    Case(101, "an event of account B names an object of account A in any field", ALL),
    Case(102, "the first 2xx names an object that another operation made", ALL),
    Case(103, "an event dated 6 to 59 minutes ahead, then the true one", ALL),
    Case(104, '"it never happened" while mirror or provider has an object that fits', ALL),
    Case(
        105,
        "refunded_amount counts refunds in progress, or only succeeded ones; refunds made elsewhere; four at once",
        ALL,
    ),
    Case(106, "an answer gzipped twice; 2 GB; a drip", (SQLITE,)),
    Case(107, "any of our exceptions under sentry-sdk's defaults with our before_send", (SQLITE,)),
    Case(108, "an async def handler", (SQLITE,)),
    Case(109, "our clock six hours slow", ALL),
    Case(110, "webhook route forgotten, shadowed, misspelt", (SQLITE,)),
    Case(111, "wrong API key; provider away", (SQLITE,)),
    Case(112, "two amounts of 2**63 - 1", ALL),
    Case(113, "database lost during an API call", (POSTGRES, MARIADB)),
    Case(114, "django-celery-beat's DatabaseScheduler, worker away for a day", (REDIS,)),
    Case(115, "PgBouncer in transaction mode between app and database", (POSTGRES,)),
    Case(116, "a handler swallows a database error; the handlers of two workers deadlock", (POSTGRES, MARIADB)),
    Case(117, "kill -9 at every boundary of dispatch while a page of objects is claimed", ALL),
    Case(118, "failover of PostgreSQL to a synchronous standby in the middle of load", (POSTGRES,)),
    Case(119, "a callback that a handler gave to on_commit meets a deadlock, a lock timeout, a locked database", ALL),
    Case(120, "such a callback raises anything else, for half of the objects", ALL),
    Case(121, "a handler raises a BaseException, closes its connection, rolls back by hand, ends the process", ALL),
    Case(122, "an event up to five seconds after an answer about its object; the provider away", ALL),
    Case(146, "the first concurrent events of a fresh process with several threads", (SQLITE,)),
    Case(129, "50,000 payments made before the installation; the first synchronisation", ALL),
)

BY_NUMBER = {case.number: case for case in CASES}
