"""What pytest leaves alone here."""

#: Bodies of planted faults, whose draws go by the name of the file.
collect_ignore = ["autotest_bodies.py"]
