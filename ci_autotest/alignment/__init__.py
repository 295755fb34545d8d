"""Alignment: compare a candidate with the reference, find the step that differs, decide who is wrong."""
