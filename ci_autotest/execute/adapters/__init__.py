"""What tables need beyond a rename: functions that a host runs, one module for each framework."""
