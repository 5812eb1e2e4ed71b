# At most four times what is allowed, each page written to.
block = 1 << 20
taken = []
while len(taken) * block < 4 * LIMITS['memory']:
    taken.append(b'x' * block)
end()
