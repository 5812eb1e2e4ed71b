# Prints who runs this, and where.
id -un 2>/dev/null || id -u
pwd
