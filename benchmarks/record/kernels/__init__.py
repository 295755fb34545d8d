"""The kernels: each is right but for what its bug was. Written from the descriptions in the trackers, never from sources."""
