"""What a table's row needs beyond other names: functions with torch's arguments, by framework."""
