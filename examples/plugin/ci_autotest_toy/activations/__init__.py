"""Tests of activations."""
