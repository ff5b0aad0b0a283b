"""Reports: a run directory as one HTML page that needs no network, and several runs side by side."""

from .compare import comparison, table, write_comparison
from .page import report, write_report

__all__ = ["comparison", "report", "table", "write_comparison", "write_report"]
