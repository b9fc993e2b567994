// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses in messages.

/// Returns an address for messages: without the user's name and password (if the address has a scheme), and
/// without the query and the fragment, which may have a secret.
pub(super) fn shown(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn messages_have_no_secrets_of_an_address() {
        for (address, expected) in [
            ("http://host/a.mp4", "http://host/a.mp4"),
            ("https://me:secret@host:8443/a@b.mp4?token=x#t", "https://host:8443/a@b.mp4"),
            ("http://host?key=secret", "http://host"),
            ("clip.mp4", "clip.mp4"),
        ] {
            assert_eq!(shown(address), expected);
        }
    }
}
