"""Functions with torch's arguments, by framework, for rows of a mapping table that need more than other names."""
