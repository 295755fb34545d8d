"""Tests of data loaders: do the workers, epochs and ranks of a loader draw numbers of their own?"""
