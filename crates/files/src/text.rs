//! Texts from files, as terminals and pages may show them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character does more than to be seen: it controls a terminal, changes the direction of what is beside it, or
/// hides. Line ends and tabs do not.
fn acts(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        // Zero width, and directions (Unicode Standard Annex 9).
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        letter => letter.is_control(),
    }
}

/// A text without characters that act on a terminal: `\u{1b}` stands for an escape. All text from files that is shown
/// passes through here.
pub fn shown(text: &str) -> Cow<'_, str> {
    replaced(text, |letter, into| {
        let _ = write!(into, "\\u{{{:x}}}", u32::from(letter));
    })
}

/// As [`shown`], with as many bytes: for a text with places that are known by their bytes.
pub fn masked(text: &str) -> Cow<'_, str> {
    replaced(text, |letter, into| {
        let (whole, rest) = (letter.len_utf8() / 3, letter.len_utf8() % 3);
        into.extend(std::iter::repeat_n('\u{fffd}', whole).chain(std::iter::repeat_n('?', rest)));
    })
}

/// JSON with the same content, in which such characters are escaped.
pub fn shown_json(json: &str) -> Cow<'_, str> {
    replaced(json, |letter, into| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(into, "\\u{unit:04x}");
        }
    })
}

/// TOML with the same content, in whose strings such characters are escaped.
pub fn shown_toml(toml: &str) -> Cow<'_, str> {
    replaced(toml, |letter, into| {
        let _ = match u32::from(letter) {
            code @ ..0x1_0000 => write!(into, "\\u{code:04x}"),
            code => write!(into, "\\U{code:08x}"),
        };
    })
}

/// A text as code in Markdown, also in a table's cell, that it does not leave.
pub fn shown_code(text: &str) -> String {
    format!("`{}`", shown(text).replace('`', "'").replace('|', "\\|").replace(['\n', '\t'], " "))
}

fn replaced(text: &str, put: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if acts(letter) { put(letter, &mut safe) } else { safe.push(letter) }
    }
    safe.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "\u{1b}[31mred\u{1b}]0;title\u{7} \u{202e}abc\u{9b}2J\r\u{e0041}\u{7f}\nnext\t|";

    #[test]
    fn nothing_acts_on_a_terminal() {
        let safe = shown(BAD);
        assert!(!safe.chars().any(acts), "{safe}");
        assert!(
            safe.starts_with("\\u{1b}[31mred\\u{1b}]0;title\\u{7} \\u{202e}abc")
                && safe.ends_with("\nnext\t|")
        );
        assert!(matches!(shown("Größe: 4 µs – “so”\n"), Cow::Borrowed(_)));
        assert_eq!((masked(BAD).len(), masked(BAD).chars().any(acts)), (BAD.len(), false));
        assert!(shown_json("\"\u{e0041}\u{9b}\"") == "\"\\udb40\\udc41\\u009b\"");
        assert_eq!(shown_toml("x = \"\u{202e}\u{e0041}\""), "x = \"\\u202e\\U000e0041\"");
        assert_eq!(shown_code("a`<b>|\n\u{202e}"), "`a'<b>\\| \\u{202e}`");
    }
}
