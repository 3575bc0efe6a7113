"""What a paper alone needs: settings, runs, tables and its claims; one folder each."""
