"""References to compare a subject with: the vendor's code live, recordings of it, or the engine; and anchors."""
