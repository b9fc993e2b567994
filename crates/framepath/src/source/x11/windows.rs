// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds a window by its number or a part of its name.

use x11rb::protocol::xproto::{AtomEnum, ConnectionExt as _, MapState, Window};

use super::server::{XConnection, XFailure, XServer, reply};
use crate::error::StageError;

/// Maximum length of a window's name, in units of four bytes; the rest is not read.
const NAME_WORDS: u32 = 256;
/// Maximum number of windows that an error lists.
const LISTED: usize = 12;

/// Window with its name, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedWindow {
    pub(super) id: Window,
    pub(super) name: String,
}

/// Writes the window as errors list it, such as `0x2a00003 (xterm)`.
impl std::fmt::Display for NamedWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.id)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " ({})", self.name) }
    }
}

/// Returns the window that the option `window` means by `text`: a number that begins with `0x`, or a part of the
/// name of exactly one visible window of the screen with the root window `root`.
///
/// # Errors
/// There is no such window, or there are several.
pub(super) fn find(server: &XServer, root: Window, text: &str) -> Result<NamedWindow, StageError> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(id) = hexadecimal.and_then(|digits| Window::from_str_radix(digits, 16).ok()) {
        return match server.ask(|connection| described(connection, id)) {
            Ok(Some(window)) => Ok(window.named),
            Ok(None) | Err(XFailure::Refused(..)) => {
                Err(server.error(format!("window={text}: there is no such window")))
            }
            Err(failure) => Err(failure.into_error()),
        };
    }
    let mut visible = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let children = match server.ask(|connection| {
            let tree = connection.query_tree(parent)?.reply()?;
            let children = tree.children.into_iter().map(|child| described(connection, child));
            children.collect::<Result<Vec<_>, _>>()
        }) {
            Ok(children) => children,
            // The window was closed since its parent listed it.
            Err(XFailure::Refused(..)) => continue,
            Err(failure) => return Err(failure.into_error()),
        };
        for child in children.into_iter().flatten().filter(|child| child.is_visible) {
            open.push(child.named.id);
            visible.push(child.named);
        }
    }
    visible.retain(|window| !window.name.is_empty());
    chosen(&visible, text).map_err(|what| server.error(format!("window={text}: {what}")))
}

/// Window with the attributes by which it is searched.
struct Described {
    named: NamedWindow,
    is_visible: bool,
}

/// Returns the window's name and state; `None` if the window has ended.
fn described(
    connection: &XConnection,
    id: Window,
) -> Result<Option<Described>, x11rb::errors::ReplyOrIdError> {
    let title = connection.intern_atom(false, b"_NET_WM_NAME")?.reply()?.atom;
    let attributes = connection.get_window_attributes(id)?;
    let new = connection.get_property(false, id, title, AtomEnum::ANY, 0, NAME_WORDS)?;
    let old = connection.get_property(false, id, AtomEnum::WM_NAME, AtomEnum::ANY, 0, NAME_WORDS)?;
    let (attributes, new, old) = (attributes.reply(), new.reply(), old.reply());
    let attributes = match attributes {
        Ok(attributes) => attributes,
        Err(x11rb::errors::ReplyError::X11Error(_)) => return Ok(None),
        Err(error) => return Err(reply(error)),
    };
    let names =
        [new, old].into_iter().flatten().map(|name| String::from_utf8_lossy(&name.value).into_owned());
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let is_visible = attributes.map_state == MapState::VIEWABLE;
    Ok(Some(Described { named: NamedWindow { id, name }, is_visible }))
}

/// Returns the only window whose name contains `text`, or the reason why there is none.
fn chosen(windows: &[NamedWindow], text: &str) -> Result<NamedWindow, String> {
    let matching: Vec<_> = windows.iter().filter(|window| window.name.contains(text)).collect();
    let listed = |windows: &mut dyn Iterator<Item = &NamedWindow>, count: usize| {
        let shown: Vec<String> = windows.take(LISTED).map(ToString::to_string).collect();
        let more = if count > LISTED { format!(" and {} more", count - LISTED) } else { String::new() };
        shown.join(", ") + &more
    };
    match matching[..] {
        [window] => Ok(window.clone()),
        [] if windows.is_empty() => {
            Err("no visible window has a name; give the number of a window, such as 0x2a00003".to_owned())
        }
        [] => Err(format!(
            "no visible window has this in its name; the visible windows are {}",
            listed(&mut windows.iter(), windows.len())
        )),
        _ => Err(format!(
            "{} visible windows have this in their names: {}; give the number of one, such as {:#x}",
            matching.len(),
            listed(&mut matching.iter().copied(), matching.len()),
            matching[0].id
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_one_name_chooses_a_window() {
        let window = |id, name: &str| NamedWindow { id, name: name.to_owned() };
        let windows = [window(0x10, "xterm"), window(0x20, "Files"), window(0x30, "xterm 2")];
        assert_eq!(chosen(&windows, "ile"), Ok(windows[1].clone()));
        let error = chosen(&windows, "xterm").unwrap_err();
        assert!(
            error.starts_with("2 visible windows have this in their names: 0x10 (xterm), 0x30 (xterm 2);")
        );
        let error = chosen(&windows, "clock").unwrap_err();
        assert!(
            error.ends_with("the visible windows are 0x10 (xterm), 0x20 (Files), 0x30 (xterm 2)"),
            "{error}"
        );
        assert!(chosen(&[], "clock").unwrap_err().starts_with("no visible window has a name"));
        let many: Vec<_> = (0..15).map(|id| window(id, "a")).collect();
        assert!(chosen(&many, "a").unwrap_err().contains("0xb (a) and 3 more"));
    }
}
