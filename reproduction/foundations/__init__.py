"""What the page on foundations takes from records and draws."""
