"""The 30th Fibonacci number, by a program that nobody has reviewed."""

a, b = 0, 1
for _ in range(30):
    a, b = b, a + b
print(a)
