"""Whether all is well, and if not, what a person must do. Reads the database; sends and writes nothing."""

from payments_integration.health.examining import examine, spell, unreachable
from payments_integration.health.report import AccountReport, Problem, Report

__all__ = ["AccountReport", "Problem", "Report", "examine", "spell", "unreachable"]
