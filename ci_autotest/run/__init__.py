"""Run cases in worker processes, and watch those from the parent."""
