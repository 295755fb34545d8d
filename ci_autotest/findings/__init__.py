"""From a suspect to a finding: confirm it, locate and shrink it, write it, and run its repro alone."""
