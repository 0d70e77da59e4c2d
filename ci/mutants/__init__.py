"""Small changes to the code that judges, each of which a test must notice."""
