"""ctypes: types, structures and pointers to functions."""
