# The users' image: any of jupyter/* and these two lines. docker build -f notebook.Dockerfile --build-arg BASE=YOURS deploy/images
# It has the scheduler's release of replkernel, and one version of Python for all images of a user.
ARG BASE=jupyter/scipy-notebook
FROM ${BASE}
RUN pip install --no-cache-dir replkernel
