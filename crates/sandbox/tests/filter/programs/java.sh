# Copies by channel, threads, processes, sockets.
cat > Main.java <<'J'
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.stream.*;
public class Main {
    public static void main(String[] a) throws Exception {
        Path one = Path.of("a"), two = Path.of("b"), three = Path.of("c");
        Files.write(one, new byte[1_000_000]);
        Files.copy(one, two);
        try (var in = FileChannel.open(one); var out = FileChannel.open(three, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            if (in.transferTo(0, in.size(), out) != 1_000_000) throw new Error("transferTo");
            in.map(FileChannel.MapMode.READ_ONLY, 0, 100).load();
        }
        if (Files.size(two) != Files.size(three)) throw new Error("sizes");
        if (IntStream.range(0, 100000).parallel().sum() != 704982704) throw new Error("sum");
        if (new ProcessBuilder("true").start().waitFor() != 0) throw new Error("process");
        var where = UnixDomainSocketAddress.of("socket");
        try (var server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(where);
            try (var client = SocketChannel.open(where); var other = server.accept(); var in = FileChannel.open(one)) {
                client.write(ByteBuffer.wrap(new byte[10]));
                if (other.read(ByteBuffer.allocate(10)) != 10) throw new Error("unix");
                if (in.transferTo(0, 1000, client) != 1000) throw new Error("transferTo a socket");
            }
        }
        if ("loopback".equals(System.getenv("CLASS"))) {
            try (var server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                    var client = new Socket(server.getInetAddress(), server.getLocalPort()); var other = server.accept()) {
                client.setTcpNoDelay(true); client.setSoTimeout(5000); client.setReceiveBufferSize(10000); client.setKeepAlive(true);
                client.getOutputStream().write(7);
                if (other.getInputStream().read() != 7) throw new Error("tcp");
            }
            try (var datagrams = new DatagramSocket(0, InetAddress.getLoopbackAddress()); var selector = Selector.open()) {
                datagrams.send(new DatagramPacket(new byte[1], 1, datagrams.getLocalSocketAddress()));
                datagrams.receive(new DatagramPacket(new byte[1], 1));
            }
            if (NetworkInterface.networkInterfaces().count() != 1) throw new Error("interfaces");
        }
    }
}
J
java -Xmx128m Main.java
