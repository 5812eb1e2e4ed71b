ignore_all_signals()
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        break
while True:
    signal.pause()
