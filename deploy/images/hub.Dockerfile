# The Hub's image: z2jh's own, whose configuration calls setup_replkernel. The users of z2jh's image may not write to its Python.
ARG BASE=jupyterhub/k8s-hub
FROM ${BASE}
USER root
RUN pip install --no-cache-dir replkernel
USER 1000
