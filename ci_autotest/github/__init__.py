"""The way to GitHub: the event that started a run, the REST client, and the comment on the pull request."""
