// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a path and prints where its frames' time went:
//! `cargo run --release --example run -- 'file clip.ivf ! decode ! null'`

use framepath::{Options, Pipeline, RunError, export};

fn main() {
    let text = std::env::args().nth(1).unwrap_or_else(|| "test ! queue ! null".to_owned());
    match Pipeline::parse(&text).and_then(|pipeline| pipeline.run(&Options::default())) {
        Ok(mut report) => {
            print!("{}", export::text::summary(&mut report));
            if let Some(error) = report.error {
                eprintln!("{error}");
            }
        }
        Err(RunError::Path(error)) => eprintln!("{}", error.render(&text)),
        Err(error) => eprintln!("{error}"),
    }
}
