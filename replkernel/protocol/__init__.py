"""What processes say to each other, and what pages and programs are told: typed structs. Pure.

Between router, agent and kernel process there is one file a direction, with one tagged union each. The
five Jupyter channels are not here: their frames are signed by the client's key and pass verbatim.
"""
