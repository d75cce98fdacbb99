"""Report what needs attention, and what to do about it. Reads the database; sends and writes nothing."""

from payments_integration.health.details import explain as explain, explain_removed as explain_removed
from payments_integration.health.examination import (
    examine as examine,
    format_duration as format_duration,
    unreachable as unreachable,
)
from payments_integration.health.report import (
    AccountReport as AccountReport,
    AccountStatistics as AccountStatistics,
    Problem as Problem,
    Report as Report,
    Run as Run,
    Waiting as Waiting,
)
