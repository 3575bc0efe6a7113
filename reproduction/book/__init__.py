"""The book's notebooks: their pairs, their parameters, their runs, and the rendered pages."""
