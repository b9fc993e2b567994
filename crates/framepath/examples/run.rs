// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a path and prints where its frames' time went:
//! `cargo run --release --example run -- 'file clip.ivf ! decode ! null'`

fn main() {
    let text = std::env::args().nth(1).unwrap_or_else(|| "test ! queue ! null".to_owned());
    let path = match framepath::path::parse(&text) {
        Ok(path) => path,
        Err(error) => return eprint!("{}", error.render(&text)),
    };
    match framepath::run(&path, &framepath::Options::default()) {
        Ok(mut report) => {
            print!("{}", framepath::export::text::summary(&mut report));
            if let Some(error) = report.error {
                eprintln!("{error}");
            }
        }
        Err(error) => eprintln!("{error}"),
    }
}
