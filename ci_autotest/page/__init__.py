"""The page of a report: one HTML file without network, made from ``report.json`` and the findings' folders alone."""
