"""Power: mutants of the reference as candidates, which of them a test's cases notice, and why the others survive."""
