# At most four times what is allowed; the folder itself is one.
for folder in ('/work', '/tmp'):
    made = 1
    try:
        while made < 4 * LIMITS[folder] // 4096:
            os.close(os.open(f'{folder}/{made}', os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            made += 1
    except OSError:
        pass
    say(folder, made)
end()
