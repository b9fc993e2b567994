// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the ledgers that framepath exports as CSV.

/// Splits a line of CSV at its commas outside of quotes.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for char in line.chars() {
        match char {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            char => cells.last_mut().into_iter().for_each(|cell| cell.push(char)),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_quotes_is_part_of_the_cell() {
        assert_eq!(cells("a,\"b, c\",,d"), ["a", "b, c", "", "d"]);
    }
}
