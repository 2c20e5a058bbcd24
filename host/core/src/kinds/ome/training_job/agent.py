"""Starts commands on the workers of a training job, without SSH.

  agent.py serve LAUNCHER      in a worker: runs what the launcher sends, and nobody else
  agent.py run [OPTION]... HOST COMMAND...    in the launcher: runs a command on a worker, as ssh would

A worker knows the launcher by its address: that of the launcher's name in the job's own Service. Each command is signed with the job's
key and a number that the worker has just made up, so that nobody can send it again.
"""

import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

# Tests set both of these.
PORT = int(os.environ.get("POINTSMAN_AGENT_PORT", "23999"))
KEY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "key")
MAX_HEADER = 1 << 20
MAX_CHUNK = 1 << 16
MAX_SESSIONS = 64
HANDSHAKE_TIMEOUT = 30.0
CONNECT_TIMEOUT = float(os.environ.get("POINTSMAN_AGENT_TIMEOUT", "600"))
STDIN, STDOUT, STDERR, EXIT = range(4)
# The options of ssh that take a value.
WITH_VALUE = set("BbcDEeFIiJLlmOoPpQRSWw")


def addresses(host):
    """The addresses that a name has now; none if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return set()
    return {plain(address[0]) for *_, address in found}


def plain(address):
    return address[7:] if address.startswith("::ffff:") else address


def signature(nonce, command):
    with open(KEY, "rb") as file:
        return hmac.new(file.read().strip(), (nonce + "\n" + command).encode(), hashlib.sha256).hexdigest()


def send(connection, lock, kind, payload):
    with lock:
        connection.sendall(struct.pack("!BI", kind, len(payload)) + payload)


def receive(stream):
    """A frame; none at the end."""
    head = stream.read(5)
    if len(head) < 5:
        return None
    kind, length = struct.unpack("!BI", head)
    if length > MAX_CHUNK:
        raise ValueError("a frame is longer than %d bytes" % MAX_CHUNK)
    payload = stream.read(length)
    return (kind, payload) if len(payload) == length else None


def listener():
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        except OSError:
            pass
    return socket.create_server(("", PORT), backlog=128)


def serve(launcher):
    sessions = threading.BoundedSemaphore(MAX_SESSIONS)
    # As the first process of a container it is sent SIGTERM, and ends by that only if it says so.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with listener() as server:
        while True:
            connection, peer = server.accept()
            if plain(peer[0]) not in addresses(launcher) or not sessions.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=session, args=(connection, sessions), daemon=True).start()


def session(connection, sessions):
    try:
        with connection:
            execute(connection)
    except (OSError, ValueError, KeyError) as error:
        print("a session has ended: %s" % error, file=sys.stderr, flush=True)
    finally:
        sessions.release()


def execute(connection):
    connection.settimeout(HANDSHAKE_TIMEOUT)
    nonce = secrets.token_hex(32)
    connection.sendall(nonce.encode() + b"\n")
    stream = connection.makefile("rb")
    header = stream.readline(MAX_HEADER)
    if not header.endswith(b"\n"):
        raise ValueError("the request is cut off")
    request = json.loads(header)
    command = request["command"]
    if not hmac.compare_digest(signature(nonce, command), request["signature"]):
        raise ValueError("the signature is wrong")
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True, **pipes)
    lock = threading.Lock()
    threading.Thread(target=feed, args=(stream, process), daemon=True).start()
    outputs = [(process.stdout, STDOUT), (process.stderr, STDERR)]
    pumps = [threading.Thread(target=pump, args=(output, connection, lock, kind), daemon=True) for output, kind in outputs]
    for thread in pumps:
        thread.start()
    code = process.wait()
    # What it has left in the background may hold its output open: that isn't waited for.
    for thread in pumps:
        thread.join(2.0)
    send(connection, lock, EXIT, struct.pack("!i", code if code >= 0 else 128 - code))


def feed(stream, process):
    """Passes the launcher's input on. When the launcher is gone, so is what it has started."""
    try:
        while (frame := receive(stream)) is not None:
            if frame[1]:
                process.stdin.write(frame[1])
                process.stdin.flush()
            else:
                process.stdin.close()
    except (OSError, ValueError):
        pass
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)


def pump(output, connection, lock, kind):
    try:
        while chunk := output.read1(MAX_CHUNK):
            send(connection, lock, kind, chunk)
    except OSError:
        pass


def parse(arguments):
    """The host and the command of an ssh command line."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option[1:2] in WITH_VALUE and len(option) == 2 and rest:
            rest.pop(0)
    if not rest:
        sys.exit("usage: ssh [OPTION]... HOST COMMAND...")
    return rest[0].rsplit("@", 1)[-1], " ".join(rest[1:])


def connect(host):
    deadline = time.monotonic() + CONNECT_TIMEOUT
    while True:
        try:
            connection = socket.create_connection((host, PORT), timeout=HANDSHAKE_TIMEOUT)
            stream = connection.makefile("rb")
            nonce = stream.readline(256)
            if nonce.endswith(b"\n"):
                return connection, stream, nonce.decode().strip()
            # The worker doesn't know this pod by its name yet.
            connection.close()
            error = "it closes the connection"
        except OSError as failure:
            error = str(failure)
        if time.monotonic() > deadline:
            print("ssh: the worker %s can't be reached: %s" % (host, error), file=sys.stderr)
            sys.exit(255)
        time.sleep(1.0)


def run(arguments):
    host, command = parse(arguments)
    connection, stream, nonce = connect(host)
    request = {"command": command, "signature": signature(nonce, command)}
    connection.settimeout(None)
    lock = threading.Lock()

    def pass_input():
        try:
            while chunk := os.read(0, MAX_CHUNK):
                send(connection, lock, STDIN, chunk)
            send(connection, lock, STDIN, b"")
        except OSError:
            pass

    outputs = {STDOUT: sys.stdout.buffer, STDERR: sys.stderr.buffer}
    reason = ""
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        threading.Thread(target=pass_input, daemon=True).start()
        while (frame := receive(stream)) is not None:
            kind, payload = frame
            if kind == EXIT:
                code = struct.unpack("!i", payload)[0]
                sys.stdout.flush()
                os._exit(code & 0xFF)
            outputs[kind].write(payload)
            outputs[kind].flush()
    except (OSError, ValueError) as error:
        # A worker that refuses the command leaves input unread, which resets the connection.
        reason = ": %s" % error
    print("ssh: the connection to %s has broken off%s" % (host, reason), file=sys.stderr)
    sys.exit(255)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"] and len(sys.argv) > 2:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    else:
        sys.exit(__doc__)
