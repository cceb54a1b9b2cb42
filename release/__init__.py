"""What a release needs beside wheel and sdist: npm package, conda recipe, version, checks."""
