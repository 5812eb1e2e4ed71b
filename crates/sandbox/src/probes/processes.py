others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]
say('others', *others or ['none'])
tell('secrets', *(opened(f'/proc/1/{name}', os.O_RDONLY) for name in ('environ', 'maps', 'auxv')))
tell('folders', *(lambda name=name: os.readlink(f'/proc/1/{name}') for name in ('cwd', 'exe', 'root')),
     lambda: os.listdir('/proc/1/root/'), lambda: os.listdir('/proc/1/cwd/'))
tell('descriptors', *(lambda fd=fd: os.readlink(f'/proc/1/fd/{fd}') for fd in range(3)))
end()
