"""The recipe that trains an embedded checkpoint of any model, on pages that it draws."""
