guest = '/guest/mayfly-guest'
assert os.path.exists(guest)
tell('program', opened(guest, os.O_WRONLY), opened(guest, os.O_RDWR), lambda: os.chmod(guest, 0o777),
     lambda: os.truncate(guest, 0), lambda: os.unlink(guest), lambda: os.rename(guest, '/guest/other'),
     lambda: os.rename('/work/exit.frame', guest))
tell('folder', opened('/guest/mayfly-probe', os.O_WRONLY | os.O_CREAT), lambda: os.mkdir('/guest/mayfly-folder'),
     lambda: os.symlink('/work', '/guest/mayfly-link'), lambda: os.chmod('/guest', 0o777))
end()
