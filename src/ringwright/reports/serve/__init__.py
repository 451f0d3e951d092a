"""Jobs in the browser: what a server keeps, who may ask it, what it runs, and the page."""
