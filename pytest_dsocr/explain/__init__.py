"""What would explain a failure: the stage computed again under each known mistake, until one gives the same tensor."""
