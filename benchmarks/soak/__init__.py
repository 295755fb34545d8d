"""No false alarm: the shipped suite in every profile against implementations that are different and right.

``python -m benchmarks.soak [FIRST COUNT [JOURNAL]]`` holds torch against each of them in the cases ``FIRST .. FIRST +
COUNT`` of every test, a chunk of cases after the other, each chunk in a process of its own. Every finished case is a
line of the journal, so that a run that was ended goes on where it was; a comparison that ends its process is a line
too, and the chunk goes on behind it. What is accused is held against ``read.yml``, where what was read by hand stands.
"""
