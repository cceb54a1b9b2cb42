"""`replkernel loadtest`: sessions of people played against a live Jupyter Server, through its own API.

Law: it sees what a browser's page sees (REST and WebSockets of Jupyter Server), and nothing inside; what it
starts ends with it.
"""
