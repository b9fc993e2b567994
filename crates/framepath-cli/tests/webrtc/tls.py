# SPDX-License-Identifier: MIT OR Apache-2.0
"""A web server's encryption in front of another server: TLS on a free port, which it prints.

    tls.py CERTIFICATE KEY PORT
"""

import socket
import ssl
import sys
import threading

certificate, key, port = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(connection):
    try:
        encrypted = context.wrap_socket(connection, server_side=True)
    except OSError:
        return
    plain = socket.create_connection(("127.0.0.1", int(port)))
    threading.Thread(target=pump, args=(encrypted, plain), daemon=True).start()
    pump(plain, encrypted)
    encrypted.close()


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
