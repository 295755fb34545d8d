"""No false alarms: the shipped suite in every profile, against different but correct implementations.

``python -m benchmarks.soak [FIRST COUNT [JOURNAL]]`` compares torch with each of them in the cases ``FIRST .. FIRST +
COUNT`` of every test, chunk by chunk, each in a process of its own. Every finished case is a line of the journal, so
that an interrupted run continues where it stopped. A comparison that kills its process is a line, too, and the chunk
continues after it. ``read.yml`` explains the accusations that a person has read.
"""
