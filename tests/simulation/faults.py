"""Every fault that a schedule can choose, by the boundary where it strikes."""

from __future__ import annotations

from tests.simulation.scheduler import CRASH, WAIT

#: Answers that the provider, or a proxy before it, gives without having done anything.
REFUSALS = ("refuse", "unprocessable", "limit", "busy", "error", "page", "redirect")
#: A connection of the pool ended before the first byte of an answer: the client repeats the request at once.
ENDED = ("ended before it was executed", "ended after it was executed")
#: What the merchant's code raises.
RAISED = ("fail", "missing", "memory", "cancel", "exit", "keyboard", "generator")
#: What it leaves behind: a block of ``atomic`` that it entered, or that a generator entered which ends later.
LEFT = ("open", "unfinished")
#: By boundary: the faults that can happen there. One that is listed twice happens twice as often.
KINDS: dict[str, tuple[str, ...]] = {
    "begin": (WAIT, WAIT, CRASH, "fail"),  # before BEGIN
    "commit": (CRASH, "fail", "lost"),  # before COMMIT: rolled back; refused; committed, but unknown to the process
    "certify": ("conflict", "conflict"),  # in the COMMIT of what has written: another transaction was faster
    "committed": (WAIT, WAIT, CRASH, CRASH),  # after COMMIT, before on_commit
    "write": (WAIT, CRASH, "fail", "conflict"),  # a single statement, likewise
    "written": (WAIT, CRASH, "lost"),
    "connect": (WAIT, CRASH),  # before the last look at the claim
    "send": (WAIT, WAIT, CRASH, "drop", "late", "twice", *ENDED, *REFUSALS),  # before a request leaves
    "answer": (WAIT, WAIT, CRASH, CRASH, "lost", "lost", "truncate", "error", "page", "slow", "undated"),
    "respond": (CRASH, "lost"),  # after a delivery was stored, before the provider has the status
    "publish": (CRASH, "drop", "twice"),  # a wake-up on its way to the broker
    "task": (WAIT, CRASH),  # before a task does anything
    # inside the transaction of the dispatch: what ``merchant.RAISED`` names; or the receiver swallows an error of the
    # database, closes the connection, marks the transaction for rollback, ends it by hand, calls a service that sends,
    # or outlasts its claim and succeeds
    "receiver": ("fail", *RAISED, *LEFT, "swallow", "close", "rollback", "ended", "begun", "call", "slow", CRASH),
    # of a receiver's, after that commit, robust or not
    "callback": ("conflict", "conflict", *RAISED, *LEFT, "autocommit", "close", "slow", CRASH),
    "attention": ("fail", "cancel", "exit", *LEFT, "autocommit", "close", "slow", CRASH),  # in a receiver of attention
    "saved": ("fail", "missing", "hook"),  # by another app's receiver of post_save and post_delete on our rows
    "sleep": (CRASH,),  # while a process waits
}
#: The boundaries of requests to the provider.
REQUESTS = ("connect", "send", "answer")
#: A schedule has only some of these: a calm network brings the others' faults further.
FAMILIES: dict[str, frozenset[str]] = {
    "crashes": frozenset({CRASH}),
    "waits": frozenset({WAIT}),
    "database": frozenset({"begin", "commit", "certify", "write", "written"}),
    "network": frozenset({"send", "answer", "respond"}),
    "merchant": frozenset({"receiver", "callback", "attention", "saved", "publish", "task", "sleep"}),
}

ALL: tuple[tuple[str, str], ...] = tuple((point, kind) for point, kinds in KINDS.items() for kind in kinds)


def family(point: str, kind: str) -> str:
    """The family of a fault."""
    if kind in (CRASH, WAIT):
        return "crashes" if kind == CRASH else "waits"
    return next(name for name, members in FAMILIES.items() if point in members)
