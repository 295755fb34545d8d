"""The backend ``module``: a host in the candidate's own interpreter, its process, requests and responses."""
