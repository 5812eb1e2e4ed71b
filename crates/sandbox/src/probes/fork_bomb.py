# At most four times what is allowed: on a host that does not count them they are not many either.
ignore_all_signals()
held, stopped_by = 1, 'nothing'
while held < 4 * LIMITS['pids']:
    try:
        if os.fork() == 0:
            while True:
                signal.pause()
    except OSError as error:
        stopped_by = errno.errorcode[error.errno]
        break
    held += 1
say('held', held)
say('stopped_by', stopped_by)
# From here on the host counts, and then ends all of it.
say('state', 'holding')
while True:
    signal.pause()
