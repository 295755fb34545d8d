"""Functions written for repros: a script takes the text of those that it calls, so each needs torch or numpy alone.

Nothing here is imported by the rest of the package. A name that a module only declares is bound by the script.
"""
