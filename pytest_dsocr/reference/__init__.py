"""What the implementation under test is compared with: the vendor's code live, recordings of it, its anchors."""
