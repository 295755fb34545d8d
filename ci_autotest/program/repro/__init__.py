"""Repros: scripts that show a finding with the candidate alone."""
