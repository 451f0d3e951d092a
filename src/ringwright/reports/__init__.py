"""Reports: a summary object in, text or a page out. Nothing here computes a figure that the analysis did not give.

In: what other rooms answer. Out: text of a given width, HTML pages that open without a network, and the server of such pages.
Start reading: `terminal`, the summary on a screen; `html`, a page; `draw`, pictures as numbers for SVG; `serve.application`.
"""
