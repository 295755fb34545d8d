"""Reports: one ``RunResult`` rendered as JSON, JUnit XML, Markdown, annotations and folders of findings."""
