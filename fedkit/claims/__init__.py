"""What a paper claims beside what was measured: claim, judge, tables."""
