"""Report what needs attention, and what to do about it. Reads the database; sends and writes nothing."""

from payments_integration.health.details import explain, explain_removed
from payments_integration.health.examination import examine, format_duration, unreachable
from payments_integration.health.report import AccountReport, AccountStatistics, Problem, Report, Run, Waiting

__all__ = [
    "AccountReport",
    "AccountStatistics",
    "Problem",
    "Report",
    "Run",
    "Waiting",
    "examine",
    "explain",
    "explain_removed",
    "format_duration",
    "unreachable",
]
