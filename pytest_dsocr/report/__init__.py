"""Result of a run, and its views: terminal, JSON file, HTML page, Markdown and CI."""
