"""The session: wires the stages for each command, and applies the effects that they decide on."""
