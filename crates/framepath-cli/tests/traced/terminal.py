#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Job control with `framepath trace`: an interactive bash in a pseudo terminal gets the keys of a user.

Usage: terminal.py FRAMEPATH LEVEL SCENARIO
LEVEL is one of framepath's, or `alone` for the command without a tracer. The scenarios are the functions of this file
whose names are in SCENARIOS. Ends with code 1 if the shell or the command behaves in another way than alone; then
prints the step, the processes and the text of the terminal.
"""

import glob
import os
import pty
import re
import select
import signal
import sys
import sysconfig
import tempfile
import termios
import time

FRAMEPATH, LEVEL, SCENARIO = sys.argv[1:]
LIMIT = 15
PROMPT = "READY> "
CTRL_C, CTRL_D, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x04", "\x1a", "\x1c"

# Counts for 6 s, which is longer than any limit of the tracer, and prints each Ctrl-C and Ctrl-\.
COUNTS = """
import os, signal, sys, time
def handle(name):
    return lambda *_: os.write(1, f"caught {name}\\n".encode())
signal.signal(signal.SIGTSTP, signal.SIG_IGN if "ignore" in sys.argv else signal.SIG_DFL)
signal.signal(signal.SIGINT, handle("interrupt"))
signal.signal(signal.SIGQUIT, handle("quit"))
for number in range(60):
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        time.sleep(max(0, end - time.monotonic()))
    os.write(1, f"{number}\\n".encode())
os.write(1, b"end\\n")
sys.exit(7)
"""

# Loads libraries for 4 s.
IMPORTS = """
import ctypes, sys, time
for number, path in enumerate(sys.argv[1:]):
    try:
        ctypes.CDLL(path)
    except OSError:
        pass
    print("loaded", number, flush=True)
    time.sleep(0.1)
print("end", flush=True)
"""


class Wrong(Exception):
    pass


class Process:
    """Line of /proc/PID/stat."""

    def __init__(self, pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, tail = file.read().rsplit(") ", 1)
        self.pid, self.name = int(pid), head.split("(", 1)[1]
        fields = tail.split()
        self.state = fields[0]
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])

    def is_stopped(self):
        return self.state in "Tt"

    def __repr__(self):
        return f"{self.pid} {self.name} {self.state} (parent {self.parent}, group {self.group})"


def processes(session):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            process = Process(pid)
        except OSError:
            continue
        if process.session == session and process.state not in "ZX":
            found.append(process)
    return found


def until(what, holds):
    deadline = time.monotonic() + LIMIT
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Wrong(f"never: {what}")
        time.sleep(0.01)


class Terminal:
    """Interactive bash in a terminal of its own."""

    all = []

    def __init__(self):
        self.text, self.seen, self.is_open = "", 0, True
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            # The text is what programs print, without the echo of the keys.
            settings = termios.tcgetattr(0)
            settings[3] &= ~termios.ECHO
            termios.tcsetattr(0, termios.TCSANOW, settings)
            environment = {name: value for name, value in os.environ.items() if name not in ("PROMPT_COMMAND", "ENV")}
            environment |= {"PS1": PROMPT, "TERM": "dumb", "HISTFILE": "/dev/null"}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        Terminal.all.append(self)
        self.prompt()

    def read(self):
        """Reads what is there, and waits a little for it."""
        while self.is_open and select.select([self.master], [], [], 0.02)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                self.is_open = False
            self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")

    def until_text(self, pattern):
        """Waits for a pattern behind the last one, and returns the text up to and with it."""
        def find():
            self.read()
            return re.compile(pattern).search(self.text, self.seen)

        found = until(f"the text {pattern!r}", find)
        begin, self.seen = self.seen, found.end()
        return self.text[begin:self.seen]

    def prompt(self):
        return self.until_text(re.escape(PROMPT))

    def keys(self, keys):
        os.write(self.master, keys.encode())

    def type(self, line):
        self.keys(line + "\n")

    def code(self):
        """Returns the exit code of the last command."""
        self.type('echo "code=$?="')
        code = int(re.search("code=([0-9]+)=", self.until_text("code=[0-9]+=")).group(1))
        self.prompt()
        return code

    def processes(self):
        """Returns the processes of the session except the shell."""
        return [process for process in processes(self.pid) if process.pid != self.pid]

    def job(self, name):
        """Waits until a program of this name waits, and returns it and the processes of its job."""
        def find():
            self.read()
            job = self.processes()
            named = [process for process in job if process.name == name and process.state == "S"]
            return (named[0], job) if named else None

        return until(f"{name} runs", find)

    def until_stopped(self, job):
        def all_are():
            self.read()
            now = {process.pid: process for process in self.processes()}
            return all(process.pid in now and now[process.pid].is_stopped() for process in job)

        until(f"all of {job} are stopped", all_are)

    def until_running(self, job):
        def all_are():
            self.read()
            now = {process.pid: process for process in self.processes()}
            return all(process.pid in now and not now[process.pid].is_stopped() for process in job)

        until(f"all of {job} run", all_are)

    def until_foreground(self, group):
        until(f"group {group} is in the foreground", lambda: os.tcgetpgrp(self.master) == group)

    def until_empty(self):
        until("no process is left", lambda: not self.processes())


def equal(what, found, wanted):
    if found != wanted:
        raise Wrong(f"{what}: {found!r}, expected {wanted!r}")


def traced(command):
    if LEVEL == "alone":
        return command
    return f"'{FRAMEPATH}' trace --quiet --level {LEVEL} -- {command}"


def python(folder, text, *arguments):
    """Returns the command line of a Python program."""
    file = os.path.join(folder, "program.py")
    with open(file, "w", encoding="utf-8") as program:
        program.write(text)
    return " ".join([f"'{sys.executable}'", file, *arguments])


def stop_key(terminal, _):
    terminal.type(traced("sleep 100"))
    sleep, job = terminal.job("sleep")
    terminal.until_foreground(sleep.group)
    for _ in range(2):
        terminal.keys(CTRL_Z)
        terminal.until_text("Stopped.*sleep 100")
        terminal.prompt()
        terminal.until_stopped(job)
        terminal.type("jobs")
        terminal.until_text("Stopped.*sleep 100")
        terminal.prompt()
        terminal.type("fg")
        terminal.until_running(job)
        terminal.until_foreground(sleep.group)
    terminal.keys(CTRL_C)
    terminal.prompt()
    equal("code", terminal.code(), 130)


def stop_signal(terminal, _):
    terminal.type(traced("sleep 100"))
    sleep, job = terminal.job("sleep")
    for number in (signal.SIGSTOP, signal.SIGTSTP):
        os.kill(sleep.pid, number)
        terminal.until_text("Stopped.*sleep 100")
        terminal.prompt()
        terminal.until_stopped(job)
        terminal.type("bg; fg")
        terminal.until_running(job)
        terminal.until_foreground(sleep.group)
    os.kill(sleep.pid, signal.SIGTERM)
    terminal.prompt()
    equal("code", terminal.code(), 143)


def ignored_stop_key(terminal, folder):
    terminal.type(traced(python(folder, COUNTS, "ignore")))
    terminal.until_text("\n5\n")
    terminal.keys(CTRL_Z)
    text = terminal.prompt()
    if "Stopped" in text or "\nend\n" not in text:
        raise Wrong("the job is stopped, though its command ignores SIGTSTP")
    equal("code", terminal.code(), 7)


def input(terminal, _):
    terminal.type(traced("cat"))
    cat, _ = terminal.job("cat")
    terminal.until_foreground(cat.group)
    terminal.type("one")
    terminal.until_text("one\n")
    terminal.type("two")
    terminal.until_text("two\n")
    terminal.keys(CTRL_D)
    terminal.prompt()
    equal("code", terminal.code(), 0)


def background_input(terminal, _):
    terminal.type(traced("cat") + " &")
    terminal.prompt()

    def is_stopped():
        terminal.read()
        job = terminal.processes()
        return "cat" in [process.name for process in job] and all(process.is_stopped() for process in job) and job

    job = until("the job is stopped when it reads", is_stopped)
    terminal.type("jobs")
    terminal.until_text("Stopped.*cat")
    terminal.prompt()
    terminal.type("fg")
    terminal.until_running(job)
    terminal.type("one")
    terminal.until_text("\none\n")
    terminal.keys(CTRL_D)
    terminal.prompt()
    equal("code", terminal.code(), 0)


def handled_interrupt(terminal, folder):
    terminal.type(traced(python(folder, COUNTS)))
    keys = [(5, CTRL_C, "interrupt"), (8, CTRL_C, "interrupt"), (12, CTRL_BACKSLASH, "quit"), (20, CTRL_C, "interrupt")]
    text = ""
    for number, key, name in keys:
        text += terminal.until_text(f"\n{number}\n")
        terminal.keys(key)
        text += terminal.until_text(f"caught {name}\n")
    text += terminal.prompt()
    lines = text.removesuffix(PROMPT).split()
    numbers = [line for line in lines if line.isdigit()]
    equal("numbers", numbers, [str(number) for number in range(60)])
    # A signal that the tracer had forwarded, too, would be caught twice.
    equal("caught", [word for word in lines if word in ("interrupt", "quit")], [name for *_, name in keys])
    equal("the rest", [line for line in lines if not line.isdigit()], ["caught", "interrupt"] * 2 + ["caught", "quit",
          "caught", "interrupt", "end"])
    equal("code", terminal.code(), 7)


def quit_key(terminal, _):
    terminal.type("ulimit -c 0")
    terminal.prompt()
    terminal.type(traced("sleep 100"))
    sleep, _ = terminal.job("sleep")
    terminal.until_foreground(sleep.group)
    terminal.keys(CTRL_BACKSLASH)
    terminal.prompt()
    equal("code", terminal.code(), 131)


def background(terminal, _):
    for command, code in (("sleep 1", 0), ("sh -c 'sleep 0.2; exit 3'", 3), ("sh -c 'sleep 0.2; kill -TERM $$'", 143)):
        terminal.type(traced(command) + " & wait $!")
        text = terminal.prompt()
        if "Stopped" in text:
            raise Wrong("a background job is stopped")
        equal("code", terminal.code(), code)
    # In a shell without job control, and several at the same time.
    terminal.type("bash -c '" + " & ".join([traced("sleep 0.3").replace("'", "")] * 3) + " & wait; echo all'")
    terminal.until_text("\n?all\n")
    terminal.prompt()
    equal("code", terminal.code(), 0)


def hangup(terminal, _):
    terminal.type(traced("sleep 100"))
    sleep, job = terminal.job("sleep")
    terminal.until_foreground(sleep.group)
    os.close(terminal.master)
    terminal.is_open = False
    until(f"all of {job} have ended", lambda: not processes(terminal.pid))


def attached(terminal, folder):
    # Libraries of the standard library of Python, and what they need.
    modules = sorted(glob.glob(os.path.join(sysconfig.get_config_var("DESTSHARED"), "*.so")))[:40]
    terminal.type(python(folder, IMPORTS, *modules))
    terminal.until_text("loaded 1\n")
    pid = os.tcgetpgrp(terminal.master)
    if LEVEL != "alone":
        other = Terminal()
        other.type(f"'{FRAMEPATH}' trace --quiet --level {LEVEL} -p {pid} --seconds 2")
        other.prompt()
        equal("code of the tracer", other.code(), 0)
    text = terminal.prompt()
    wanted = "".join(f"loaded {number}\n" for number in range(2, len(modules))) + "end\n" + PROMPT
    equal("text", text, wanted)
    equal("code", terminal.code(), 0)


SCENARIOS = (stop_key, stop_signal, ignored_stop_key, input, background_input, handled_interrupt, quit_key, background,
             hangup, attached)


def main():
    scenario = {function.__name__: function for function in SCENARIOS}[SCENARIO]
    code = 0
    with tempfile.TemporaryDirectory(prefix="framepath-terminal-") as folder:
        try:
            terminal = Terminal()
            scenario(terminal, folder)
            terminal.until_empty()
        except (Wrong, OSError) as wrong:
            print(f"{wrong}")
            for terminal in Terminal.all:
                print("processes:", *processes(terminal.pid), sep="\n    ")
                print("terminal:", *terminal.text.splitlines(), sep="\n    ")
            code = 1
        finally:
            for terminal in Terminal.all:
                for _ in range(3):
                    for process in processes(terminal.pid):
                        try:
                            os.kill(process.pid, signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                    time.sleep(0.02)
    return code


if __name__ == "__main__":
    sys.exit(main())
