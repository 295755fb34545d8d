"""Programs of torch in another framework's words: arguments bound by name, modules lowered, operators by a table."""
