"""The process that runs programs in a framework's own environment. It needs the standard library and numpy only."""
