"""What a machine has and lacks for a run, looked at as a run would: a finding each, and what to do about it."""
