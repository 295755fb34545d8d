"""The session: wires the stages for each command. What is decided is decided in the stages; effects are applied here."""
