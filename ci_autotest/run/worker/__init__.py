"""The worker: the process that imports tests and frameworks and runs cases. Nothing of the parent imports it."""
