"""A headless Chromium for tests of pages, driven through its debugging pipe with Python's standard library alone."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chromium-headless-shell")
PATIENCE = 60.0  # seconds for any answer


class Browser:
    """One browser with one page. `problems` has the page's errors: exceptions, console errors, failed requests."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="draftsmith-browser-", ignore_cleanup_errors=True)
        command_out, self.command = os.pipe()
        self.answer, answer_in = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
                   f"--user-data-dir={self.folder.name}", "about:blank"]
        # The program reads commands from file 3 and answers on file 4.
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{command_out} 4>&{answer_in}', "bash", PROGRAM, *options],
            pass_fds=(command_out, answer_in), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(command_out)
        os.close(answer_in)
        self.unread = b""
        self.number = 0
        self.session = None
        self.problems = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # its helpers too, which otherwise still write to the folder
        self.process.wait()
        os.close(self.command)
        os.close(self.answer)
        self.folder.cleanup()

    # ---- messages ----

    def call(self, method, **parameters):
        """The result of a command."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.command, data):]
        answer = self.wait(lambda got: got.get("id") == self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait(self, wanted):
        """The first message that is wanted; events among those before it are noted."""
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" not in self.unread:
                ready, _, _ = select.select([self.answer], [], [], max(0, end - time.monotonic()))
                chunk = os.read(self.answer, 1 << 16) if ready else b""
                if not chunk:
                    raise RuntimeError("the browser does not answer")
                self.unread += chunk
            line, self.unread = self.unread.split(b"\0", 1)
            message = json.loads(line)
            self.note(message)
            if wanted(message):
                return message

    def note(self, message):
        method, about = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(str([one.get("value", one.get("description")) for one in about["args"]]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])

    # ---- the page ----

    def size(self, width, height=900, dark=False, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, file):
        """Seconds until the page is loaded and drawn."""
        self.problems, self.loaded = [], False
        begun = time.monotonic()
        self.call("Page.navigate", url=f"file://{file}")
        while not self.loaded:
            self.wait(lambda got: got.get("method") == "Page.loadEventFired")
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - begun

    def js(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def scripts(self, on):
        self.call("Emulation.setScriptExecutionDisabled", value=not on)
