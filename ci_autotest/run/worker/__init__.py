"""The worker: the process that imports tests and frameworks and runs cases. The parent imports none of it."""
