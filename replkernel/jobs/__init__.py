"""Jobs on a host: what an agent is told to run beside notebooks, and the supervisor process of each job."""
