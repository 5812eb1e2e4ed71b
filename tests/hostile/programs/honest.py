# An honest job among the programs: what it prints is known beforehand.
import hashlib, os, subprocess, sys, tempfile, threading

digest = b''
for _ in range(20000):
    digest = hashlib.sha256(digest + b'honest').digest()
results = []
threads = [threading.Thread(target=lambda n=n: results.append(n * n)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.TemporaryFile() as file:
    file.write(b'x' * (1 << 20))
    file.seek(0)
    size = len(file.read())
child = subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout.strip()
print(digest.hex()[:16], sorted(results), size, child, sorted(os.listdir('/work')))
