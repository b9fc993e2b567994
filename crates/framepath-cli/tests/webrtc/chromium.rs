// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chromium without a window, driven through two pipes (Chrome DevTools Protocol, one JSON text for each message, each ended by a zero).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for the page.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at the page.
const LOOK: Duration = Duration::from_millis(50);

/// Browser with one page.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Number of the last command.
    number: u64,
    /// Session of the page; empty before there is one.
    session: String,
    /// Messages on the console, exceptions, and what the browser complains about.
    pub complaints: Vec<String>,
    /// URLs that the page has requested.
    pub requests: Vec<String>,
    _profile: TempDir,
}

impl Chromium {
    /// Opens a page in a window of this size, pixels.
    pub fn open(url: &str, size: (u32, u32)) -> Chromium {
        Chromium::open_by(Command::new("sh"), url, size)
    }

    /// Opens a page as [`open`](Chromium::open) does. `shell` starts a shell, and may begin with a program that starts it elsewhere.
    pub fn open_by(mut shell: Command, url: &str, (width, height): (u32, u32)) -> Chromium {
        let profile = tempfile::tempdir().unwrap();
        // The browser has the pipes as descriptors 3 and 4.
        let mut child = shell
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "chromium"])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Chromium {
            child,
            to,
            from,
            number: 0,
            session: String::new(),
            complaints: Vec::new(),
            requests: Vec::new(),
            _profile: profile,
        };
        let target = browser.first_page();
        let session =
            browser.command("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        browser.resize((width, height));
        browser.command("Page.navigate", json!({ "url": url }));
        browser
    }

    /// Opens a page in a tab in front of this one, which is then in the background.
    pub fn open_in_front(&mut self, url: &str) {
        self.command("Target.createTarget", json!({ "url": url }));
    }

    /// Shows this tab again.
    pub fn bring_to_front(&mut self) {
        self.command("Page.bringToFront", json!({}));
    }

    /// Sets the size of the window, pixels.
    pub fn resize(&mut self, (width, height): (u32, u32)) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Writes a picture of the window as a PNG file.
    pub fn take_picture(&mut self, file: &Path) {
        let picture = self.command("Page.captureScreenshot", json!({ "format": "png" }));
        std::fs::write(file, BASE64.decode(picture["data"].as_str().unwrap().as_bytes()).unwrap()).unwrap();
    }

    /// Waits for the page of the first tab: of another one, Chromium would draw few frames. Returns its identifier.
    fn first_page(&mut self) -> Value {
        for _ in 0..200 {
            let targets = self.command("Target.getTargets", json!({}));
            let mut targets = targets["targetInfos"].as_array().unwrap().iter();
            if let Some(page) = targets.find(|target| target["type"] == "page") {
                return page["targetId"].clone();
            }
            sleep(LOOK);
        }
        panic!("Chromium opens no tab");
    }

    /// Sends a command, and returns its result.
    fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "Chromium has ended: {method}");
            let message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.take_event(&message);
        }
    }

    fn take_event(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.complaints.push(parameters.to_string());
            }
            "Network.requestWillBeSent" => {
                self.requests.push(parameters["request"]["url"].as_str().unwrap().to_owned());
            }
            _ => {}
        }
    }

    /// Returns the value of a JavaScript expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.command("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns the text of the element with this id.
    pub fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById('{id}')?.textContent ?? ''"));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until a JavaScript expression is true in the page. Panics after 60 s, with what the page shows.
    pub fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(expression) != true {
            if begin.elapsed() > PATIENCE {
                let shown = self.value("document.body.innerText");
                panic!("never: {expression}\n{:#?}\nthe page shows: {shown}", self.complaints);
            }
            sleep(LOOK);
        }
    }

    /// Presses a key, such as `l` or `Enter`.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { key };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.command("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Chromium {
    /// Ends the browser and waits for it.
    fn drop(&mut self) {
        // Its own processes end with it. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
