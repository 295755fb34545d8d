"""From a suspect to a finding: looked at again, located, shrunk, written down, and its repro run alone."""
