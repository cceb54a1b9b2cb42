"""The wire between replkernel's processes: router ↔ agent, kernel process ↔ agent, and the routing envelope.

One file a direction, with one tagged union each. The five Jupyter channels are not here: their frames are
signed by the client's key and pass verbatim.
"""
