"""What the implementation under test is held against: the vendor's code live, recordings of it, its anchors.

Nothing here knows the subject.
"""
