"""One recipe that trains an embedded checkpoint: architecture, tokenizer and page maker are its arguments."""
