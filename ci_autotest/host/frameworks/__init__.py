"""Frameworks behind one interface, one module each: how to make tensors, call functions and take gradients."""
