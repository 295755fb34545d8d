"""Shrink a finding to the smallest program that shows it. Proposes programs and is given verdicts; runs nothing."""
