import socket


def socket_of(family, kind=socket.SOCK_RAW, protocol=0):
    return lambda: socket.socket(family, kind, protocol).close()


tell('raw', socket_of(socket.AF_INET, protocol=1), socket_of(socket.AF_INET6, protocol=58))
tell('packet', socket_of(socket.AF_PACKET))
tell('alg', socket_of(38, socket.SOCK_SEQPACKET))
tell('vsock', socket_of(40, socket.SOCK_STREAM))
tell('netlink', socket_of(socket.AF_NETLINK, protocol=0), socket_of(socket.AF_NETLINK, protocol=12))
# CAN, TIPC, Bluetooth, RxRPC, KCM, XDP.
tell('rare', socket_of(29), socket_of(30, socket.SOCK_DGRAM), socket_of(31), socket_of(33, socket.SOCK_DGRAM),
     socket_of(41, socket.SOCK_DGRAM), socket_of(44))
end()
