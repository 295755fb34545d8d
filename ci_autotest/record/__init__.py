"""Recording: a body runs once per case, on the reference, through values that write down what was done."""
