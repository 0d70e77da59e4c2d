"""What a run found: one result, of which the terminal's lines, the JSON file and the page of pictures are views."""
