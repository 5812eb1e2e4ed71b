# An honest job beside the programs: it beats, and says so when anything of its own is not as it was.
import os, sys, time

secret = os.environ['NEIGHBOUR_SECRET']
with open('/work/secret', 'w') as file:
    file.write(secret)
with open('/dev/shm/secret', 'w') as file:
    file.write(secret)
os.chmod('/dev/shm/secret', 0o666)
kept = (secret * 4096).encode()


def state():
    """What only others could change."""
    return {
        'processes': sorted(name for name in os.listdir('/proc') if name.isdigit()),
        'files': sorted(os.listdir('/work') + os.listdir('/tmp') + os.listdir('/dev/shm')),
        'contents': [open(path).read() == secret for path in ('/work/secret', '/dev/shm/secret')],
        'memory': kept == (secret * 4096).encode(),
        'network': sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else [],
        'name': os.uname().nodename,
        'ids': [os.getuid(), os.getgid(), os.getgroups()],
    }


first, beats = state(), 0
while True:
    now = state()
    if now != first:
        print('changed:', {name: now[name] for name in now if now[name] != first[name]} if secret not in str(now) else 'a secret', flush=True)
        first = now
    print('beat', beats, flush=True)
    beats += 1
    time.sleep(0.2)
