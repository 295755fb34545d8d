"""Localize: the step at which a program departs, and how errors grow where no step does alone."""
