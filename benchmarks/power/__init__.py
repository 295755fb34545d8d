"""How much the shipped suite notices: mutants of torch's own Python decompositions, run as candidates."""
