"""One module per chart: from the model to what the page's script draws, and one line in words."""
