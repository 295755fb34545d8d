"""The program of ``action.yml``: its inputs, its outputs, the runner it speaks to, its steps."""
