import socket

cards = [line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]]
say('cards', *sorted(cards) or ['none'])


def reach():
    with socket.socket() as connection:
        connection.settimeout(1)
        connection.connect(('169.254.169.254', 80))


# Where there is a card the answer is known, and nothing is dialled.
if set(cards) <= {'lo'}:
    tell('metadata', reach)
else:
    say('metadata', 'not_dialled')
end()
