"""The kernels: each is right but for what its bug was.

They are written from the descriptions in the trackers, never from sources.
"""
