"""torch's settings and generators; its objects are in `replkernel.gpu`."""
