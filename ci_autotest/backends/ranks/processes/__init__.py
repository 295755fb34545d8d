"""Ranks in processes of their own: started, spoken to, and ended when one waits for ever."""
